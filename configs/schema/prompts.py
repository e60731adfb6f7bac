"""The samples of a fine-tuning: prompts, sizes, and how they are drawn."""

from pydantic import field_validator, model_validator

from configs.schema.key import KeyGroup, key

# One token is a patch of 2 x 2 latents, and one latent covers 8 x 8 pixels.
TOKEN_PX = 16


class PromptSamples(KeyGroup):
    """The samples before the first step, during training, and after the last step."""

    every: int | None = key(
        250, "steps between samples; null: at start and end", free=True, unit="steps", ge=1
    )
    prompts: list[str] = key([], "prompts, with one image each", free=True, tags="picture")
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
        if not self.prompts:
            raise ValueError("sample.prompts is empty: list a prompt")
        if not all(prompt.strip() for prompt in self.prompts):
            raise ValueError("sample.prompts holds an empty prompt; write it or remove it")
        for name, side in (("width", self.width), ("height", self.height)):
            if side % TOKEN_PX:
                raise ValueError(f"sample.{name} {side} is not a multiple of {TOKEN_PX}")
        return self
