import copy
import hashlib
import json

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.places import DataFile
from levelbench.training.datasets.questions import Squad, read_squad, token_span

pytestmark = pytest.mark.usefixtures("own_cache")

CONTEXT = "The Norman dynasty had a major impact. In 1066 they came."
FILE = {
    "version": "1.1",
    "data": [
        {
            "title": "Normans",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "1",
                            "question": "When did they come?",
                            "answers": [{"text": "1066", "answer_start": 42}, {"text": "In 1066", "answer_start": 39}],
                        }
                    ],
                }
            ],
        }
    ],
}


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_question_comes_with_its_paragraph_and_answers(tmp_path):
    (question,) = read_squad(written(tmp_path / "a.json", FILE))
    assert (question.id, question.article, question.context) == ("1", "Normans", CONTEXT)
    assert [(each.text, each.start) for each in question.answers] == [("1066", 42), ("In 1066", 39)]


def changed(change):
    content = copy.deepcopy(FILE)
    change(content, content["data"][0]["paragraphs"][0], content["data"][0]["paragraphs"][0]["qas"][0])
    return content


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file, _, __: file.update(version="v2.0"), "its version is 'v2.0'"),
        (lambda file, _, __: file.update(data=[]), "has no questions"),
        (lambda file, _, __: file.update(data={}), "no list 'data'"),
        (lambda file, _, __: file.update(data=["x"]), "is a str, not an object"),
        (lambda _, paragraph, __: paragraph.pop("context"), "no text 'context'"),
        (lambda _, paragraph, __: paragraph.update(qas=paragraph["qas"] * 2), "two questions have the id '1'"),
        (lambda _, __, question: question.update(answers=[]), "has no answer"),
        (lambda _, __, question: question.update(question=""), "no text 'question'"),
        (lambda _, __, question: question.update(question="wh\ud800t"), r"half a surrogate pair, '\\ud800'"),
        (lambda _, __, question: question.update(id="\ud800"), r"half a surrogate pair, '\\ud800'"),
        (lambda _, __, question: question["answers"][0].update(answer_start=43), "its paragraph has '066 '"),
        (lambda _, __, question: question["answers"][0].update(answer_start=-1), "outside its paragraph"),
        (lambda _, __, question: question["answers"][0].update(answer_start=True), "outside its paragraph"),
        (lambda _, __, question: question["answers"][0].update(answer_start=999), "outside its paragraph"),
    ],
)
def test_a_wrong_part_is_an_error_that_names_it(tmp_path, change, said):
    with pytest.raises(DataError, match=said):
        read_squad(written(tmp_path / "a.json", changed(change)))


@pytest.mark.parametrize("content", ["{", "", "[" * 100_000, '{"version": ' + "9" * 5000 + "}"])
def test_invalid_json_is_an_error(tmp_path, content):
    with pytest.raises(DataError, match="not JSON"):
        read_squad(written(tmp_path / "a.json", content))


def test_another_encoding_is_an_error_that_says_where(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"version":\n "1.1\xe9"}')
    with pytest.raises(DataError, match="byte 0xe9 in line 2"):
        read_squad(tmp_path / "a.json")


def test_a_nonexistent_file_is_an_error(tmp_path):
    with pytest.raises(MissingError):
        read_squad(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("start", "end", "tokens"), [(0, 3, (0, 0)), (4, 9, (1, 1)), (5, 6, (1, 1)), (0, 9, (0, 1)), (20, 22, (3, 3))]
)
def test_the_tokens_of_a_span_are_those_it_overlaps(start, end, tokens):
    assert token_span([(0, 3), (4, 9), (9, 10)], start, end) == tokens


def loaded(folder, files, **sizes):
    return Squad(*files, **{"words": 60, "context": 24, "question": 8, **sizes}).load(folder)


def test_labels_are_the_words_of_the_answer(tmp_path, squad_files):
    data = loaded(tmp_path, squad_files())
    assert data.sizes() == {"train": 108, "validation": 12, "test": 30}
    starts, ends = data.train.columns[-2:]
    for at, passage in enumerate(data.train.reference):
        assert passage.text(starts[at], ends[at]) == passage.answers[0]


def test_columns_are_ids_characters_and_masks_of_both_texts(tmp_path, squad_files):
    columns = loaded(tmp_path, squad_files()).test.columns
    assert [column.shape for column in columns[:-2]] == [
        (30, 24),
        (30, 24, 16),
        (30, 24),
        (30, 8),
        (30, 8, 16),
        (30, 8),
    ]
    ids, characters, mask = (column.take(np.arange(3), None) for column in columns[:3])
    assert np.array_equal(mask == 0, ids == 0)
    assert bytes(characters[0, 0, :3].astype(np.uint8)) == b"The"
    assert mask[0].sum() == 15  # three sentences of four words and a full stop


def test_an_article_is_in_one_split_alone(tmp_path, squad_files):
    data = loaded(tmp_path, squad_files())
    contexts = [{passage.context for passage in split.reference} for split in (data.train, data.validation)]
    questions = json.loads((tmp_path / "train-v1.1.json").read_text())["data"]
    assert len(contexts[0]) + len(contexts[1]) <= len(questions)
    assert len(data.validation) == 4 * 3


def test_words_of_the_test_split_alone_are_unknown(tmp_path, squad_files):
    files = squad_files()
    few = loaded(tmp_path, files, words=8).train.columns[0].take(np.arange(5), None)
    assert set(np.unique(few)) <= {0, 3, 4, 5, 6, 7}


def test_training_questions_whose_answer_is_cut_off_are_left_out_and_others_are_kept(tmp_path, squad_files):
    data = loaded(tmp_path, squad_files(), context=10)
    assert len(data.train) == 72
    assert len(data.test) == 30
    assert data.test.labels.max() <= 9


def blanked(folder, file):
    """The file with a blank as the answer to its last question."""
    content = json.loads((folder / file.name).read_text())
    paragraph = content["data"][-1]["paragraphs"][0]
    paragraph["qas"][-1]["answers"] = [{"text": " ", "answer_start": paragraph["context"].index(" ")}]
    (folder / file.name).write_text(json.dumps(content))
    return DataFile(file.name, hashlib.sha256((folder / file.name).read_bytes()).hexdigest())


def test_a_question_whose_answer_has_no_word_counts_only_in_the_test(tmp_path, squad_files):
    files = squad_files()
    whole = loaded(tmp_path, files)
    data = loaded(tmp_path, [blanked(tmp_path, file) for file in files])
    assert len(data.train) + len(data.validation) >= len(whole.train) + len(whole.validation) - 1
    assert " " not in {answer for passage in data.train.reference for answer in passage.answers}
    assert len(data.test) == len(whole.test)


@pytest.mark.parametrize("name", ["train-v1.1.json", "dev-v1.1.json"])
def test_a_folder_with_a_files_name_is_not_a_file(tmp_path, squad_files, name):
    files = squad_files()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert Squad(*files).held(tmp_path) is None
    assert Squad(*files).held(tmp_path / ("x" * 300)) is None


def test_a_file_that_is_not_the_official_one_is_an_error(tmp_path, squad_files):
    squad_files()
    with pytest.raises(DataError, match="its content has SHA-256"):
        Squad().load(tmp_path)


def test_missing_files_come_with_advice(tmp_path):
    assert "LEVELBENCH_OFFLINE" in Squad().lacks()
    with pytest.raises(MissingError, match=r"put train-v1.1.json and dev-v1.1.json into a folder"):
        Squad().load()


def test_the_files_are_downloaded_and_checked(tmp_path, squad_files, server, monkeypatch):
    files = squad_files()
    server.files = {f"/{file.name}": (tmp_path / file.name).read_bytes() for file in files}
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    monkeypatch.setenv("LEVELBENCH_SQUAD_URL", server.url)
    data = Squad(*files, words=60, context=24, question=8).load()
    assert data.source.startswith("downloaded")


def test_an_empty_mirror_address_is_ignored(monkeypatch):
    asked = []

    def fetch(url, path, *_, **__):
        asked.append(url)
        return path

    monkeypatch.setattr("levelbench.training.datasets.download.fetch", fetch)
    monkeypatch.setenv("LEVELBENCH_SQUAD_URL", "")
    Squad().download(lambda *_: None)
    assert asked[0] == "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json"
