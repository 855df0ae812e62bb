"""accelerate, diffusers, sentence-transformers and torch load compressed files under the hook."""

from typing import Any

import accelerate
import pytest
import torch
from host_models import IDS, assert_same, minilm, outputs, saved
from transformers import AutoModel, BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import tensorcomp
from tensorcomp import hub

pytestmark = pytest.mark.filterwarnings("default")  # hosts warn of each other
SPLIT = {"embeddings": "cpu", "encoder": "disk", "pooler": "cpu"}


@pytest.fixture(autouse=True)
def _hook(_hook_is_off: None) -> None:
    hub.enable()


def same_tensors(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("devices", [{"": "cpu"}, SPLIT], ids=["cpu", "disk"])
def test_accelerate_dispatches_a_file(tmp_path, devices):
    plain = saved("bert", tmp_path / "model")
    packed = tensorcomp.compress(plain).path
    with accelerate.init_empty_weights():
        model = BertModel(BertConfig.from_pretrained(packed))
    model = accelerate.load_checkpoint_and_dispatch(
        model, str(packed / "model.tc.safetensors"), devices, offload_folder=tmp_path / "offload"
    )
    assert torch.equal(outputs(model), outputs(BertModel.from_pretrained(plain)))


def test_accelerate_loads_shards_by_the_index(tmp_path):
    plain = saved("llama", tmp_path / "model")
    packed = tensorcomp.compress(plain).path
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(packed)).to(torch.bfloat16)
    # It wants an index whose name ends in .index.json.
    index = packed / "model.tc.safetensors.index.json"
    (packed / "model.safetensors.index.tc.json").rename(index)
    accelerate.load_checkpoint_in_model(model, index, strict=True)
    same_tensors(model.state_dict(), LlamaForCausalLM.from_pretrained(plain).state_dict())


def test_accelerate_loads_shards_of_kept_names(tmp_path):
    plain = saved("llama", tmp_path / "model")
    packed = tensorcomp.compress(plain, keep_names=True).path
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(packed)).to(torch.bfloat16)
    accelerate.load_checkpoint_in_model(model, packed, strict=True)
    same_tensors(model.state_dict(), LlamaForCausalLM.from_pretrained(plain).state_dict())


def diffusion_models() -> dict[str, Any]:
    from diffusers import AutoencoderKL, UNet2DModel

    torch.manual_seed(1)
    return {
        "vae": AutoencoderKL(
            block_out_channels=(32, 64),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=8,
        ),
        "unet": UNet2DModel(
            sample_size=16,
            block_out_channels=(32, 64),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
        ),
    }


@pytest.mark.parametrize("keywords", [{}, {"max_shard_size": "500KB"}], ids=["file", "shards"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", ["vae", "unet"])
def test_diffusers_loads_models(tmp_path, name, kept, keywords):
    model = diffusion_models()[name]
    model.save_pretrained(tmp_path / "model", **keywords)
    packed = tensorcomp.compress(tmp_path / "model", keep_names=kept).path
    options = {} if kept else {"variant": "tc"}
    same_tensors(type(model).from_pretrained(packed, **options).state_dict(), model.state_dict())
    without_map = type(model).from_pretrained(packed, **options, disable_mmap=True)
    same_tensors(without_map.state_dict(), model.state_dict())


@pytest.mark.parametrize("kept", [False, True])
def test_diffusers_loads_pipelines(tmp_path, kept):
    from diffusers import DDPMPipeline, DDPMScheduler

    pipeline = DDPMPipeline(diffusion_models()["unet"], DDPMScheduler(num_train_timesteps=4))
    target = tmp_path / "pipeline"
    hub.save_pretrained(pipeline, target, keep_names=kept)
    found = DDPMPipeline.from_pretrained(target, **({} if kept else {"variant": "tc"}))
    same_tensors(found.unet.state_dict(), pipeline.unet.state_dict())

    def image(pipeline: Any) -> Any:
        seed = torch.Generator().manual_seed(0)
        return pipeline(num_inference_steps=2, generator=seed, output_type="np").images

    assert (image(found) == image(pipeline)).all()


@pytest.mark.parametrize("kept", [False, True])
def test_sentence_transformers(tmp_path, kept):
    from sentence_transformers import SentenceTransformer

    plain = minilm()
    packed = tensorcomp.compress(plain, tmp_path / "packed", keep_names=kept).path
    options = {} if kept else {"model_kwargs": {"variant": "tc"}}
    texts = ["A tensor is an array.", "Checkpoints are large."]
    found = SentenceTransformer(str(packed), device="cpu", **options).encode(texts)
    assert (found == SentenceTransformer(str(plain), device="cpu").encode(texts)).all()


def test_sentence_transformers_of_modules(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense

    dense = Dense(64, 32)
    model = SentenceTransformer(modules=[dense], device="cpu")
    hub.save_pretrained(model, tmp_path / "model", keep_names=True)
    found = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    same_tensors(found.state_dict(), model.state_dict())


def test_torchs_reader_of_distributed_checkpoints(tmp_path):
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    plain = saved("llama", tmp_path / "model")
    packed = tensorcomp.compress(plain, keep_names=True).path
    wanted = LlamaForCausalLM.from_pretrained(plain).state_dict()
    wanted.pop("lm_head.weight", None)
    state = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    load(state, storage_reader=HuggingFaceStorageReader(str(packed)), no_dist=True)
    same_tensors(state, wanted)


def test_a_model_of_hub_s_own_mixin(tmp_path):
    from huggingface_hub import PyTorchModelHubMixin

    class Net(torch.nn.Linear, PyTorchModelHubMixin):
        pass

    model = Net(64, 65)
    model.save_pretrained(tmp_path / "model", config={"in_features": 64, "out_features": 65})
    packed = tensorcomp.compress(tmp_path / "model", keep_names=True).path
    same_tensors(Net.from_pretrained(packed).state_dict(), model.state_dict())


def test_transformers_reads_bytes_where_files_cannot_be_mapped(tmp_path):
    plain = saved("bert", tmp_path / "model")
    packed = tensorcomp.compress(plain).path
    model = AutoModel.from_pretrained(packed, variant="tc", disable_mmap=True)
    assert_same(model, AutoModel.from_pretrained(plain))
    assert outputs(model).shape[1] == IDS.shape[1]
