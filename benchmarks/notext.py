"""Types that transformers names among those that read text, and that are no text architectures."""

_PICTURE = "takes no text without a picture"
_STATES = "no attention: a recurrence over tokens"
_DRAFTS = "drafts for another model, and attends to the keys of that one's cache"
_MUSIC = "writes sound: its decoder reads codes of sound"
NO_TEXT = {
    **dict.fromkeys(
        (
            "blip", "blip-2", "idefics", "instructblip", "instructblipvideo", "kosmos-2",
            "lxmert", "pix2struct", "pp_formulanet", "vision-encoder-decoder",
        ),
        _PICTURE,
    ),
    **dict.fromkeys(("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"), _STATES),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), _DRAFTS),
    **dict.fromkeys(("musicgen", "musicgen_melody"), _MUSIC),
    "evolla": "reads proteins",
    "fnet": "no attention: Fourier transforms in its place",
    "shieldgemma2": "says of a picture whether it is safe",
    "pi0": "takes no text without a robot's actions",
    "voxtral_realtime": "takes no text without sound",
}  # fmt: skip
