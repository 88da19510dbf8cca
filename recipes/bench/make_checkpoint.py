"""A checkpoint folder of official size and layout with random weights: for cold starts and loaders.

    python -m recipes.bench.make_checkpoint qwen3-tts-1.7b-customvoice DIR --vocabulary TINY

TINY is a folder with vocab.json and merges.txt (the tests' tiny checkpoint has them). Unlike a
`random:` model the end token is not banned: give the run a --max-seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from ttsbatch.models.qwen3_tts.codec_specs import (
    DECODER_PREFIX,
    ENCODER_PREFIX,
    decoder_specs,
    encoder_specs,
    unused_codec_specs,
)
from ttsbatch.models.qwen3_tts.official import official_json, random_config
from ttsbatch.models.qwen3_tts.sizes import talker_specs
from ttsbatch.models.weights import random_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a CustomVoice or VoiceDesign model, as after random:")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True)
    args = parser.parse_args()
    config = random_config(args.name)
    main_json, generation, codec_json = official_json(args.name)
    codec = args.folder / "speech_tokenizer"
    codec.mkdir(parents=True, exist_ok=True)
    (args.folder / "config.json").write_text(json.dumps(main_json))
    (args.folder / "generation_config.json").write_text(json.dumps(generation))
    (codec / "config.json").write_text(json.dumps(codec_json))
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(args.vocabulary / name, args.folder / name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g = torch.Generator(device=device).manual_seed(0)
    talker = random_weights(talker_specs(config), g, device)
    talker = {n: x.to("cpu", torch.bfloat16) for n, x in talker.items()}
    save_file(talker, args.folder / "model.safetensors")
    specs = {DECODER_PREFIX + n: s for n, s in decoder_specs(config.codec.decoder).items()}
    specs |= {ENCODER_PREFIX + n: s for n, s in encoder_specs(config.codec.encoder).items()}
    specs |= unused_codec_specs(config.codec)
    weights = {n: x.cpu() for n, x in random_weights(specs, g, device).items()}
    save_file(weights, codec / "model.safetensors")


if __name__ == "__main__":
    main()
