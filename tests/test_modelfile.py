"""Are a model's experts read as its file has them, and does a cut or foreign file say so in one line?

Every GGUF file here is written byte by byte as the format's documentation has it.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload import modelfile
from agentload.errors import InputError


def string(text: str, order: str = "<") -> bytes:
    data = text.encode()
    return struct.pack(f"{order}Q", len(data)) + data


def pair(key: str, kind: int, value: bytes, order: str = "<") -> bytes:
    return string(key, order) + struct.pack(f"{order}I", kind) + value


def u32(key: str, value: int, order: str = "<") -> bytes:
    return pair(key, 4, struct.pack(f"{order}I", value), order)


def strings(key: str, texts: list[str]) -> bytes:
    return pair(key, 9, struct.pack("<IQ", 8, len(texts)) + b"".join(map(string, texts)))


def gguf(*pairs: bytes, version: int = 3, order: str = "<", tensors: bytes = bytes(4096)) -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, 1, len(pairs)) + b"".join(pairs) + tensors


QWEN = (
    pair("general.architecture", 8, string("qwen3moe")),
    pair("general.name", 8, string("Qwen3 30B A3B")),
    strings("tokenizer.ggml.tokens", ["!", "the", "Ġ"] * 1000),
    pair("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 3000) + bytes(12_000)),
    pair("qwen3moe.rope.freq_base", 6, struct.pack("<f", 1e6)),
    pair("tokenizer.ggml.add_bos_token", 7, b"\0"),
    u32("qwen3moe.expert_count", 128),
    u32("qwen3moe.expert_used_count", 8),
    u32("qwen3moe.context_length", 40_960),
)


def written(folder: Path, data: bytes, name: str = "model.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def told(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        modelfile.read(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_gguf_file_tells_its_experts_wherever_they_stand_in_its_metadata(tmp_path: Path) -> None:
    for version in (2, 3):
        for pairs in (QWEN, QWEN[::-1]):
            path = written(tmp_path, gguf(*pairs, version=version))
            found = modelfile.read(path)
            assert (found.total, found.used, found.shared, found.architecture) == (128, 8, None, "qwen3moe")
            assert found.keys == ("qwen3moe.expert_count", "qwen3moe.expert_used_count")
            assert not found.dense


def test_shared_experts_are_told_apart_from_routed_ones(tmp_path: Path) -> None:
    pairs = (
        pair("general.architecture", 8, string("deepseek2")),
        u32("deepseek2.expert_count", 256),
        u32("deepseek2.expert_used_count", 6),
        u32("deepseek2.expert_shared_count", 1),
        u32("other.expert_count", 7),  # of no layer of this model
    )
    found = modelfile.read(written(tmp_path, gguf(*pairs)))
    assert (found.total, found.used, found.shared) == (256, 6, 1)


def test_a_file_of_the_other_byte_order_is_read_too(tmp_path: Path) -> None:
    pairs = (
        pair("general.architecture", 8, string("olmoe", ">"), ">"),
        u32("olmoe.expert_count", 64, ">"),
        u32("olmoe.expert_used_count", 8, ">"),
    )
    found = modelfile.read(written(tmp_path, gguf(*pairs, order=">")))
    assert (found.total, found.used) == (64, 8)


def test_a_file_larger_than_any_memory_is_read_by_its_first_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, gguf(*QWEN))
    with path.open("r+b") as file:
        file.truncate(100 * 1024**3)  # a sparse file: it takes no disk
    assert modelfile.read(path).total == 128


def test_a_model_without_experts_or_with_one_is_dense(tmp_path: Path) -> None:
    name = pair("general.architecture", 8, string("llama"))
    for pairs in ((name, u32("llama.block_count", 30)), (name, u32("llama.expert_count", 0))):
        assert modelfile.read(written(tmp_path, gguf(*pairs))).dense
    assert modelfile.read(written(tmp_path, b'{"model_type": "llama"}', "config.json")).dense


def test_counts_of_each_layer_are_one_count_when_all_layers_agree(tmp_path: Path) -> None:
    def of_layers(*counts: int) -> bytes:
        held = struct.pack(f"<IQ{len(counts)}I", 4, len(counts), *counts)
        return gguf(
            pair("general.architecture", 8, string("lfm2moe")),
            pair("lfm2moe.expert_count", 9, held),
            u32("lfm2moe.expert_used_count", 4),
        )

    assert modelfile.read(written(tmp_path, of_layers(0, 32, 32))).total == 32
    assert "expected the same count in all layers, got 32, 64: give --experts and --used" in told(
        written(tmp_path, of_layers(0, 32, 64))
    )


def test_a_file_cut_anywhere_in_its_metadata_says_where(tmp_path: Path) -> None:
    whole = gguf(*QWEN, tensors=b"")
    tail = len(whole) - 3  # inside the last pair
    for size in (*range(4, 200, 7), len(whole) // 2, tail):
        assert "cut or damaged" in told(written(tmp_path, whole[:size]))
    assert f"ends after {tail:,} bytes, inside metadata qwen3moe.context_length" in told(
        written(tmp_path, whole[:tail])
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_garbage_behind_the_magic_is_an_error_of_one_line_and_never_more(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(gguf(*QWEN[:2], *QWEN[4:], tensors=b""))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.getbasetemp(), bytes(whole), "garbage.gguf")
    try:
        said, total = "", modelfile.read(path).total
    except InputError as error:
        said, total = str(error), None
    assert "\n" not in said
    assert total is None or 0 <= total < 2**32


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "expected GGUF version 2 or 3, got 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "got 1,152,921,504,606,846,976 pairs: it is cut or damaged"),
        (gguf(pair("a" * 65_536, 4, bytes(4))), "a metadata key of at most 65535 bytes behind its header, got 65,536"),
        (gguf(pair("general.x", 13, bytes(4))), "expected a type of 0 to 12 for metadata general.x, got 13"),
        (gguf(u32("llama.block_count", 2)), "expected general.architecture in its metadata, there is none"),
        (gguf(pair("general.x", 8, struct.pack("<Q", 2**63))), "inside metadata general.x"),
        (gguf(pair("general.x", 9, struct.pack("<IQ", 8, 2**63))), "inside metadata general.x"),
        (
            gguf(pair("general.x", 9, struct.pack("<IQ", 9, 1) * 5 + struct.pack("<IQ", 0, 0))),
            "expected at most 4 arrays in arrays",
        ),
        (b"PK\x03\x04" + bytes(100), "expected a .gguf file, which begins with GGUF, a config.json"),
        (b"", "expected a .gguf file"),
    ],
)
def test_a_damaged_or_foreign_file_says_what_is_wrong_with_it(tmp_path: Path, data: bytes, says: str) -> None:
    path = written(tmp_path, data)
    text = told(path)
    assert says in text
    assert str(path) in text


def test_a_part_of_a_model_other_than_the_first_is_told(tmp_path: Path) -> None:
    data = gguf(pair("split.no", 2, struct.pack("<H", 1)))
    assert "is part 2 of 3: the first has the metadata" in told(written(tmp_path, data, "m-00002-of-00003.gguf"))


# The keys that these families' published config.json files have; numbers shortened to what is read.
FAMILIES: list[tuple[str, dict[str, Any], tuple[int, int, int | None]]] = [
    ("deepseek_v3", {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1}, (256, 8, 1)),
    ("qwen3_moe", {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}, (128, 8, None)),
    ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}, (8, 2, None)),
    ("gpt_oss", {"num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4}, (128, 4, None)),
    ("hunyuan_v1_moe", {"num_experts": 64, "moe_topk": [8, 8, 8], "num_shared_expert": [1, 1, 1]}, (64, 8, 1)),
    ("longcat_flash", {"n_routed_experts": 512, "moe_topk": 12}, (512, 12, None)),
    ("ernie4_5_moe", {"moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2}, (64, 6, 2)),
    ("dbrx", {"ffn_config": {"moe_num_experts": 16, "moe_top_k": 4}}, (16, 4, None)),
    ("llama4", {"text_config": {"num_local_experts": 16, "num_experts_per_tok": 1}}, (16, 1, None)),
    (
        "qwen3_omni",
        {
            "audio_config": {"num_experts": 3, "num_experts_per_tok": 1},
            "thinker_config": {"text_config": {"num_experts": 128, "num_experts_per_tok": 8}},
        },
        (128, 8, None),
    ),
    ("gemma4", {"text_config": {"num_experts": 128, "top_k_experts": 8}}, (128, 8, None)),
]


@pytest.mark.parametrize(("kind", "keys", "expected"), FAMILIES, ids=[family[0] for family in FAMILIES])
def test_each_family_of_config_json_tells_its_experts(
    tmp_path: Path, kind: str, keys: dict[str, Any], expected: tuple[int, int, int | None]
) -> None:
    path = written(tmp_path, json.dumps({"model_type": kind, "hidden_size": 2048} | keys).encode(), "config.json")
    found = modelfile.read(path)
    assert (found.total, found.used, found.shared) == expected
    assert found.architecture == kind


def test_the_keys_say_in_which_section_the_counts_stand(tmp_path: Path) -> None:
    data = {"model_type": "llama4", "text_config": {"num_local_experts": 16, "num_experts_per_tok": 1}}
    found = modelfile.read(written(tmp_path, json.dumps(data).encode(), "config.json"))
    assert found.keys == ("text_config.num_local_experts", "text_config.num_experts_per_tok")


def test_a_dense_model_of_a_family_that_has_experts_is_dense(tmp_path: Path) -> None:
    data = {"model_type": "gemma4", "text_config": {"num_experts": None, "top_k_experts": None}}
    assert modelfile.read(written(tmp_path, json.dumps(data).encode(), "config.json")).dense


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "expected JSON"),
        (b"[" * 200_000, "nested too deep"),
        (b"\xff\xfe{", "expected JSON in UTF-8"),
        (b"[]", "expected a JSON object, got list"),
        (b'{"a": 1}', "neither model_type nor architectures"),
        (b'{"model_type": "x", "num_experts": "many"}', "num_experts: expected a count, got many"),
        (b'{"model_type": "x", "num_experts": true}', "num_experts: expected a count, got True"),
        (b'{"model_type": "x", "num_experts": -8}', "num_experts: expected a count, got -8"),
        (b'{"model_type": "x", "num_experts": [8, 16]}', "got 8, 16: give --experts and --used"),
    ],
)
def test_a_config_that_is_none_says_so(tmp_path: Path, text: bytes, says: str) -> None:
    assert says in told(written(tmp_path, text, "config.json"))


def test_a_folder_is_read_by_its_config_or_by_its_only_model(tmp_path: Path) -> None:
    assert "expected a config.json or a .gguf file in it, there is none" in told(tmp_path)
    written(tmp_path, gguf(*QWEN), "m-00001-of-00002.gguf")
    written(tmp_path, b"GGUF", "m-00002-of-00002.gguf")
    written(tmp_path, b"GGUF", "mmproj-m.gguf")
    assert modelfile.read(tmp_path).path.name == "m-00001-of-00002.gguf"
    written(tmp_path, gguf(*QWEN), "other.gguf")
    assert "there are 2 .gguf files: name one of m-00001-of-00002.gguf, other.gguf" in told(tmp_path)
    written(tmp_path, b'{"model_type": "mixtral", "num_local_experts": 8}', "config.json")
    found = modelfile.read(tmp_path)
    assert (found.total, found.used) == (8, None)


def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in told(tmp_path / "nothing.gguf")
    assert "got something else" in told(Path("/dev/null"))
