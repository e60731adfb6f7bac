"""What is checked: a config, or a run to resume, with the site that it would be submitted to."""

from dataclasses import dataclass
from pathlib import Path

from configs.checks.paths import with_absolute_paths
from configs.load import load
from configs.run.folder import ROOT, RunFolder, is_run, new_id, resume_config
from configs.schema import Run
from launch.slurm import executor
from launch.slurm.flags import Flags
from launch.submit import snapshot
from launch.submit.script import Request, batch_script
from launch.submit.site import Site, ask_site


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What might be submitted: a run, or so many `runs` of a study that it stands for.

    `yaml` is the file that its config is made of, with `overrides`.
    """

    source: Path
    yaml: Path
    overrides: list[str]
    config: Run
    resumes: RunFolder | None
    site: Site
    runs: int = 1

    def job(self) -> tuple[Flags, str]:
        """The flags and the text that `launch submit` would give to sbatch."""
        request = Request(
            source=self.source,
            overrides=self.overrides,
            config=self.config,
            resumes=self.resumes,
            identity=new_id(),
            site=self.site,
            # The snapshot is made at submit; only its folder's name stands in the text.
            tree=snapshot.Tree(digest="preflight", files=[]),
            flags={},
        )
        script = batch_script(request, request.run)
        return script.flags, executor.sbatch_text(script)


def subject(source: Path, overrides: list[str], *, site_name: str | None) -> Subject:
    """A config or a run as it would be submitted; `ConfigError` where it cannot be read."""
    resumes = RunFolder(source.resolve()) if is_run(source) else None
    if resumes:
        config = resume_config(resumes, overrides)
    else:
        config = with_absolute_paths(load(source, overrides))
    return Subject(
        source=source,
        yaml=resumes.config_file if resumes else source,
        overrides=overrides,
        config=config,
        resumes=resumes,
        site=ask_site(ROOT, config.resources, name=site_name),
    )
