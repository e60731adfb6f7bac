# shellcheck shell=bash
# Study D: what makes a U-Net and a DiT on small images train faster, and do they learn the same?

where=()
if [[ $SIZE == -small ]]; then
  images=$LOGS/digits-png
  [[ -d $images ]] || python -m train.data.digits "$images"
  where=("data.path=$images")
fi
study "d-grid$SIZE" "$@"
[[ $SIZE != -small ]] || study "d-options$SIZE" "$@"
study "d-workers$SIZE" "${where[@]}" "$@"
