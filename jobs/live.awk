# Show the steps of a training in one line that is redrawn, with rate and time to go; its other lines stay.
#   awk -v live=COLUMNS -v every=N -f jobs/live.awk
# Without `live` every N-th step is printed instead.
/^step / && live {
  split($2 ~ /\// ? $2 : $3, step, "/")
  for (i = 3; i < NF; i++) if ($i == "train") train = $(i + 1)
  # Over the last 20 records; a new attempt begins anew.
  if (n && train < seconds[n]) n = 0
  n++
  done[n] = step[1]; seconds[n] = train
  first = n > 20 ? n - 20 : 1
  line = $0
  if (train > seconds[first]) {
    rate = (done[n] - done[first]) / (train - seconds[first])
    left = int((step[2] - step[1]) / rate)
    line = sprintf("%s  %.3g steps/s  %d:%02d:%02d to go", line, rate, left / 3600, left / 60 % 60, left % 60)
  }
  if (length(line) >= live) { gsub(/  (lr|grad_norm|gpu_gb) [^ ]+/, "", line) }
  printf "\r%s\033[K", substr(line, 1, live - 1)
  open = 1
  fflush()
  next
}
/^step / && count++ % every { next }
{
  if (open) print ""
  open = 0
  print
  fflush()
}
END { if (open) print "" }
