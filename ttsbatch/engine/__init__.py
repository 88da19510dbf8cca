"""The slot engine: prompts in, finished codes and waveforms out, for any codec-LM family."""
