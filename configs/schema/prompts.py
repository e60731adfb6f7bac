"""The prompts of samples: texts, and what the image of each has of its own."""

from pydantic import field_validator, model_validator

from configs.schema.key import KeyGroup, key

# One token is a patch of 2 x 2 latents, and one latent covers 8 x 8 pixels.
TOKEN_PX = 16


class Prompt(KeyGroup):
    """A prompt, and what its image has instead of the values of the section."""

    prompt: str = key(..., "the text", min_length=1)
    seed: int | None = key(None, "seed of the noise", ge=0, lt=2**31)
    width: int | None = key(None, "width of the image", unit="px", ge=TOKEN_PX)
    height: int | None = key(None, "height of the image", unit="px", ge=TOKEN_PX)
    guidance: float | None = key(None, "distilled guidance", ge=0)


class PromptSamples(KeyGroup):
    """The samples before the first step, during training, and after the last step."""

    every: int | None = key(
        250, "steps between samples; null: at start and end", free=True, unit="steps", ge=1
    )
    prompts: list[str | Prompt] = key(
        [], "prompts, with one image each: a text, or prompt with seed, width, height, guidance",
        free=True, tags="picture",
    )  # fmt: skip
    prompts_file: str | None = key(
        None, "file with one prompt per line, instead of prompts", free=True, path="file",
        tags="picture",
    )  # fmt: skip
    width: int = key(1024, "width of an image", free=True, unit="px", ge=TOKEN_PX, tags="picture")
    height: int = key(1024, "height of an image", free=True, unit="px", ge=TOKEN_PX, tags="picture")
    steps: int = key(
        4, "sampler steps; 4 suffice for schnell, dev needs 20", free=True, ge=1, tags="picture"
    )
    guidance: float = key(1.0, "distilled guidance; dev only", free=True, ge=0, tags="picture")
    seed: int = key(
        42, "seed of the noise; prompt i uses seed + i", free=True, ge=0, lt=2**31, tags="picture"
    )

    @field_validator("prompts", mode="before")
    @classmethod
    def _one_prompt_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _something_is_drawn(self) -> "PromptSamples":
        check_prompts(self.prompts, self.prompts_file, self.width, self.height, group="sample.")
        return self


def check_prompts(
    prompts: list[str | Prompt], file: str | None, width: int, height: int, *, group: str = ""
) -> None:
    """Raise `ValueError` if there is no prompt, or a size is not a whole number of tokens."""
    if not prompts and file is None:
        raise ValueError(f"{group}prompts is empty: list a prompt, or name {group}prompts_file")
    if prompts and file is not None:
        raise ValueError(f"{group}prompts and {group}prompts_file: give one of them")
    sides: list[tuple[str, int | None]] = [("width", width), ("height", height)]
    for prompt in prompts:
        if not (prompt if isinstance(prompt, str) else prompt.prompt).strip():
            raise ValueError(f"{group}prompts holds an empty prompt; write it or remove it")
        if isinstance(prompt, Prompt):
            sides += [("prompts: width", prompt.width), ("prompts: height", prompt.height)]
    for name, side in sides:
        if side and side % TOKEN_PX:
            raise ValueError(f"{group}{name} {side} is not a multiple of {TOKEN_PX}")
