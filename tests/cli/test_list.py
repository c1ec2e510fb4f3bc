"""``levelbench list networks`` and ``list transforms``: what Level 1 has to offer."""

import json

from levelbench.networks import transforms, zoo


def test_every_network_of_the_zoo_is_listed_with_its_size_and_paper(call):
    rows = {row["network"]: row for row in json.loads(call("list", "networks", "--json")[1])["networks"]}
    assert set(rows) == set(zoo.names())
    dqn = rows["dqn"]
    assert (dqn["parameters"], dqn["published parameters"]) == (1686180, 1686180)
    assert "Mnih" in dqn["paper"]


def test_the_table_of_networks_shows_counts_in_full(call, monkeypatch):
    monkeypatch.setattr(zoo, "names", lambda: ["dqn"])
    out = call("list", "networks")[1]
    assert "1,686,180" in out


def test_every_transform_is_listed_with_what_it_does_and_its_settings(call):
    rows = {row["transform"]: row for row in json.loads(call("list", "transforms", "--json")[1])["transforms"]}
    assert set(rows) == set(transforms.names())
    assert "memory" in rows["microbatch"]["settings"]
    assert all(row["what"] for row in rows.values())


def test_the_plain_list_says_that_there_is_more(call):
    code, out, _ = call("list")
    assert code == 0
    assert "levelbench list networks" in out


def test_a_task_whose_data_have_to_be_downloaded_says_so(call, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)
    monkeypatch.delenv("LEVELBENCH_OFFLINE", raising=False)
    rows = {row["task"]: row for row in json.loads(call("list", "tasks", "--json")[1])["tasks"]}
    assert (rows["cifar10"]["to_download"], rows["digits"]["to_download"]) == ("170 MB, one archive", None)
    code, out, _ = call("list", "tasks", "--runnable")
    assert code == 0
    assert "data: to be downloaded (170 MB, one archive)" in out
    assert "nothing: it runs here" in out
    assert "to_download" not in out


def test_every_setting_of_every_recipe_is_listed_with_its_default_and_meaning(call):
    rows = json.loads(call("list", "settings", "--json")[1])["settings"]
    assert {"task": "digits", "recipe": "mlp", "setting": "lr", "default": "0.05"}.items() <= next(
        row for row in rows if (row["task"], row["recipe"], row["setting"]) == ("digits", "mlp", "lr")
    ).items()
    assert all(row["meaning"] for row in rows)
    recipes = json.loads(call("list", "recipes", "--json")[1])["recipes"]
    assert {(row["task"], row["recipe"]) for row in rows} == {(row["task"], row["recipe"]) for row in recipes}
    assert all(row["what"] for row in recipes)


def test_the_settings_that_every_task_takes_are_named_below_the_list(call):
    assert "may also have recipe, framework, device, target, ranks, scheme" in call("list", "settings", "digits")[1]


def test_a_list_is_narrowed_by_a_name_or_a_part_of_one(call):
    def listed(kind, word, column):
        return {row[column] for row in json.loads(call("list", kind, word, "--json")[1])[kind]}

    assert listed("tasks", "digits", "task") == listed("settings", "digits", "task") == {"digits"}
    assert "preresnet18" in listed("networks", "resnet1", "network")
    code, _, err = call("list", "tasks", "digts")
    assert code == 2
    assert "no task has that name; close: digits" in err
