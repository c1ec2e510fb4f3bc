import hashlib
import sys
from pathlib import Path

import pytest
from tests.experiments.campaigns import plan_of

from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UsageError
from levelbench.experiments.request import Options, load_task, meant_recipes, own_recipes, resolve
from levelbench.experiments.training import labels
from levelbench.records.summary import labels_of

pytestmark = pytest.mark.sampled(3)

NUMPY = Options(framework="numpy")


def test_an_omitted_default_and_a_stated_one_are_the_same_run():
    assert resolve("digits", {}, NUMPY).key == resolve("digits", {"lr": 0.05, "recipe": "mlp"}, NUMPY).key


def test_brackets_override_options():
    arm = resolve("digits", {"framework": "numpy", "target": 0.5}, Options(framework="torch", target=0.9))
    assert (arm.specification.framework, arm.specification.target.threshold) == ("numpy", 0.5)


@pytest.mark.parametrize("every", ["1 epoch", "1 epochs", "  1   epoch "])
def test_equal_intervals_written_differently_have_the_same_key(every):
    assert (
        resolve("digits", {}, Options(framework="numpy", evaluate_every=every)).key == resolve("digits", {}, NUMPY).key
    )


def test_another_clock_has_the_same_key():
    assert resolve("digits", {}, Options(framework="numpy", clock="mlperf")).key == resolve("digits", {}, NUMPY).key


def test_another_setting_has_another_key():
    assert resolve("digits", {"lr": 0.1}, NUMPY).key != resolve("digits", {}, NUMPY).key


def test_the_location_of_the_data_is_not_part_of_the_key(tmp_path, monkeypatch):
    monkeypatch.setattr(type(load_task("digits").data), "fetch", lambda self, folder=None: None)
    assert resolve("digits", {}, Options(framework="numpy", data=tmp_path)).key == resolve("digits", {}, NUMPY).key


def test_a_schedule_of_fixed_length_is_judged_at_its_end():
    assert resolve("digits", {"recipe": "onecycle"}, NUMPY).specification.crossing == "final"
    assert resolve("digits", {"recipe": "mlp"}, NUMPY).specification.crossing == "confirmed"


@pytest.mark.parametrize(
    ("reference", "given", "options", "error", "says"),
    [
        ("digitz", {}, NUMPY, UnknownNameError, "close: digits"),
        ("digits", {"recipe": "mpl"}, NUMPY, UnknownNameError, "close: mlp"),
        ("digits", {"framework": "nunpy"}, Options(), UnknownNameError, "close: numpy"),
        ("digits", {"hiden": 3}, NUMPY, UnknownNameError, "close: hidden"),
        ("digits", {}, Options(framework="numpy", device="cuda"), MissingError, "cpu only"),
        ("digits", {}, Options(framework="numpy", target=97.0), UsageError, r"did you mean 0\.97"),
        ("digits", {"target": "high"}, NUMPY, UsageError, "not a number"),
        ("digits", {}, Options(framework="numpy", budget_s=-1.0), UsageError, "not positive"),
        ("digits", {}, Options(framework="numpy", budget_s=float("nan")), UsageError, "not positive"),
        ("digits", {}, Options(framework="numpy", budget_epochs=0.0), UsageError, "not positive"),
        ("digits", {}, Options(framework="numpy", crossing="twice"), UnknownNameError, "crossing rule"),
        ("digits", {}, Options(framework="numpy", crossing="interpolated"), UnknownNameError, "crossing rule"),
        (
            "digits",
            {"recipe": "onecycle"},
            Options(framework="numpy", budget_epochs=5.0),
            UsageError,
            "fixed length of digits.recipe=onecycle",
        ),
        ("digits", {"hidden": 0}, NUMPY, DefinitionError, "width 0"),
        ("digits", {"batch": 0}, NUMPY, DefinitionError, "batch >= 1"),
        ("digits", {}, Options(framework="numpy", clock="wal"), UnknownNameError, "close: wall"),
        ("digits", {}, Options(framework="numpy", evaluate_every="often"), UsageError, "not an interval"),
        ("digits", {"epochs": 0}, NUMPY, DefinitionError, "trains nothing"),
        ("digits", {"lr": -1.0}, NUMPY, DefinitionError, "lr > 0"),
        ("no_such_file.py", {}, NUMPY, UsageError, "no such file"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_runs(reference, given, options, error, says):
    with pytest.raises(error, match=says):
        resolve(reference, given, options)


def test_a_task_is_loaded_from_a_file(task_file):
    assert load_task(str(task_file)).recipes == ("small",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", r"ZeroDivisionError: division by zero at line 1"),
        ("x = 1\ny = (", r"SyntaxError"),
        ("import nothing_of_that_name", "No module named"),
        ("task = 3", "no `task` of type Task"),
    ],
)
def test_a_task_file_that_raises_is_an_error_that_names_the_line(tmp_path, text, says):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(DefinitionError, match=says):
        load_task(str(path))


def test_the_source_of_a_task_file_is_its_text(task_file):
    arm = resolve(str(task_file), {}, NUMPY)
    assert arm.source.text == task_file.read_text()


def test_a_file_that_adds_one_recipe_selects_it(adding):
    path = adding("wide")
    arm = resolve(path, {}, NUMPY)
    assert (arm.specification.task, arm.specification.recipe, arm.chosen) == ("digits", "wide", ("recipe",))
    assert arm.source.text == Path(path).read_text()
    assert resolve(path, {"recipe": "mlp"}, NUMPY).specification.recipe == "mlp"


def test_a_recipe_must_be_named_if_the_file_adds_several(adding):
    path = adding("wide", "slim")
    with pytest.raises(UsageError, match=r"it adds 2 recipes to digits: wide, slim. Name one: .*recipe=wide"):
        resolve(path, {}, NUMPY)
    assert resolve(path, {}, Options(framework="numpy", recipe="slim")).specification.recipe == "slim"


@pytest.mark.parametrize(
    ("names", "own", "meant"),
    [((), ("mlp", "onecycle"), ("mlp",)), (("wide", "slim"), ("wide", "slim"), ("wide", "slim"))],
)
def test_own_recipes_are_those_that_a_file_adds_or_all_of_the_tasks(adding, names, own, meant):
    path = adding(*names)
    task = load_task(path)
    assert (own_recipes(task, path), meant_recipes(task, path)) == (own, meant)


def test_a_users_task_selects_its_first_recipe(task_file):
    task_file.write_text(f"{task_file.read_text()}\n\n@task.recipe\ndef other():\n    return small()\n")
    task = load_task(str(task_file))
    assert own_recipes(task, str(task_file)) == ("small", "other")
    assert meant_recipes(task, str(task_file)) == ("small",)


def test_a_file_cannot_replace_a_recipe_of_the_task(adding):
    with pytest.raises(DefinitionError, match=r"recipe 'mlp' of task 'digits'.*already has one .*digits\.py"):
        resolve(adding("mlp"), {}, NUMPY)


def test_labels_name_a_recipe_that_is_not_the_default(adding, store):
    plans = [plan_of([resolve(each, {}, NUMPY)], range(1), store) for each in (adding("wide"), "digits")]
    assert [labels(plan.arms) for plan in plans] == [["digits[recipe=wide]"], ["digits"]]


def test_labels_show_changed_settings_and_no_defaults(store):
    def called(*given):
        return labels(plan_of([resolve("digits", dict(each), NUMPY) for each in given], range(1), store).arms)

    assert called({"lr": 0.2, "hidden": 128}) == ["digits[lr=0.2]"]
    assert called({"lr": 0.2, "hidden": 64}, {"lr": 0.2}) == ["digits[hidden=64]", "digits[hidden=128]"]
    assert called({"lr": 0.2, "framework": "numpy"}) == ["digits[lr=0.2]"]
    assert called({"recipe": "onecycle", "lr": 0.2}, {}) == ["digits[recipe=onecycle,lr=0.2]", "digits[recipe=mlp]"]


def test_a_label_has_its_parts_in_the_order_in_which_reports_have_them():
    pytest.importorskip("torch", reason="torch is not installed")
    arms = [
        resolve("digits", {"lr": lr, "framework": name}, Options()) for lr, name in ((0.2, "numpy"), (0.1, "torch"))
    ]
    reported = labels_of([arm.specification for arm in arms])
    assert labels(arms) == reported == ["digits[framework=numpy,lr=0.2]", "digits[framework=torch,lr=0.1]"]


@pytest.fixture
def helped(tmp_path, monkeypatch, task_text):
    """A task file that imports a module next to it, which has a quality and imports another one when it is called."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_scale.py").write_text("FACTOR = 1.0\n")
    (tmp_path / "own_helper.py").write_text("def factor():\n    from own_scale import FACTOR\n    return FACTOR\n")
    path = tmp_path / "helped_task.py"
    path.write_text("import json\nimport own_helper\n" + task_text)
    yield path
    for name in ("own_helper", "own_scale"):
        sys.modules.pop(name, None)


def test_the_source_of_a_task_file_includes_only_the_users_own_modules(helped, task_file):
    source = resolve(str(helped), {}, NUMPY).source
    texts = {name: (helped.parent / f"{name}.py").read_bytes() for name in ("own_helper", "own_scale")}
    assert source.modules == {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    assert source.digest == hashlib.sha256(source.text.encode()).hexdigest()
    plain = resolve(str(task_file), {}, NUMPY).source
    assert (plain.modules, plain.whole) == ({}, plain.digest)


def test_a_previously_loaded_module_makes_no_difference(helped):
    first = resolve(str(helped), {}, NUMPY).source
    sys.modules["own_helper"].factor()
    assert resolve(str(helped), {}, NUMPY).source == first


def test_a_changed_module_changes_the_source(helped):
    before = resolve(str(helped), {}, NUMPY).source
    (helped.parent / "own_scale.py").write_text("FACTOR = 2.0\n")
    after = resolve(str(helped), {}, NUMPY).source
    assert after.digest == before.digest
    assert after.whole != before.whole


def test_a_recipe_with_a_secret_among_its_settings_is_refused(task_file, task_text):
    task_file.write_text(task_text.replace("lr: float", 'token: str = "", lr: float'))
    assert resolve(str(task_file), {}, NUMPY).specification.settings["token"] == ""
    with pytest.raises(UsageError, match="its setting token looks like a secret") as refused:
        resolve(str(task_file), {"token": "S3CRETS3CRET"}, NUMPY)
    assert "S3CRET" not in str(refused.value)
