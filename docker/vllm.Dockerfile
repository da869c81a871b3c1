# The sampler of training runs and the endpoint of re-entered models: vLLM in an environment of its own, since its pins of
# torch and transformers can't live beside ours. Spoken to over HTTP alone (training/samplers/vllm.py). The version is the
# one whose CPU build was driven; this image was never built.
#
# A run's adapters have to be merged before they are served, which `arena reenter` does:
#
#   arena reenter runs/paper/sft --name paper-sft --out runs/entry/sft
#   docker build -f docker/vllm.Dockerfile -t agent-arena-vllm docker
#   docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 -v "$(pwd -P)/runs:$(pwd -P)/runs:ro" agent-arena-vllm \
#       "$(pwd -P)/runs/entry/sft/model" --served-model-name paper-sft
#
# The served name is a recipe's `sampler_model` (`sampler = "http://127.0.0.1:8000/v1"`); for races it is the NAME@HASH
# that `arena reenter` prints. Folders keep the path they have outside: a renewed policy's adapter is read by the server
# itself, from the path that the trainer sends. The API has no key here: publish it on loopback only.
ARG VLLM_VERSION=0.32.0
FROM vllm/vllm-openai:v${VLLM_VERSION}

# adapters are loaded while it runs, each version under a name of its own
ENV VLLM_ALLOW_RUNTIME_LORA_UPDATING=True \
    HF_HUB_OFFLINE=1

# not root: it reads models and serves; caches of compiled kernels go to its home
RUN useradd --uid 10001 --create-home --home-dir /home/sampler sampler
USER sampler
WORKDIR /home/sampler

# 32,768: rollouts of 25 turns outgrew 16,384 (paper, B.6). raw_logprobs at temperature 1 is what a trainer computes.
# 0.58 of the card, not vLLM's nine tenths: GRPO trains beside the server, and 48 rollouts of 5,000 tokens need 35 GB of
# cache beside 8 of weights (training/recipes/README.md). Without a parser of calls each request with tools is refused.
# Without blanks between JSON's parts, as a judge that may write them is seen to write nothing else up to its limit.
# vLLM wants the model before every option; the last value of an option counts, so `docker run` may name another.
ENTRYPOINT ["sh", "-c", "model=$1; shift; exec vllm serve \"$model\" \
    --host 0.0.0.0 --port 8000 \
    --max-model-len 32768 \
    --gpu-memory-utilization 0.58 \
    --logprobs-mode raw_logprobs \
    --enable-lora --max-lora-rank 64 \
    --generation-config vllm \
    --enable-auto-tool-choice --tool-call-parser hermes \
    --structured-outputs-config.backend xgrammar --structured-outputs-config.disable_any_whitespace true \"$@\"", "vllm"]
