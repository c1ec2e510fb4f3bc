import json
import math
import sqlite3
import struct
import time
import zlib

import pytest

BEGAN_S = 1_790_000_000.0


def curve(tau, every_s=1.0, count=10):
    """Seconds from the start, steps, and qualities that rise to 1."""
    return [((at + 1) * every_s, (at + 1) * 100, 1 - math.exp(-(at + 1) / tau)) for at in range(count)]


@pytest.fixture
def mlflow_folder(tmp_path):
    """Write a run as MLflow's file store does."""

    def write(name, points, params=(), began_s=BEGAN_S, ended_s=None, top=tmp_path / "mlruns", status=3):
        run = top / "0" / f"id-{name}"
        for part in ("metrics/val", "params"):
            (run / part).mkdir(parents=True)
        rows = [f"{round((began_s + at_s) * 1e3)} {value} {step}" for at_s, step, value in points]
        (run / "metrics" / "val" / "acc").write_text("\n".join(rows) + "\n")
        for key, value in dict(params).items():
            (run / "params" / key).write_text(str(value))
        ended = round((ended_s if ended_s is not None else began_s + points[-1][0]) * 1e3)
        facts = {"run_id": f"id-{name}", "run_name": name, "start_time": round(began_s * 1e3), "end_time": ended}
        facts["status"] = status
        (run / "meta.yaml").write_text("".join(f"{key}: {value}\n" for key, value in facts.items()))
        return top

    return write


@pytest.fixture
def mlflow_database(tmp_path):
    """Write a run as MLflow's SQL store does, in the columns that are read."""
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE runs (run_uuid, name, start_time, end_time, lifecycle_stage, status)")
        database.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        database.execute("CREATE TABLE params (key, value, run_uuid)")

    def write(name, points, params=(), stage="active", status="FINISHED"):
        with sqlite3.connect(path) as database:
            whole = (name, name, round(BEGAN_S * 1e3), None, stage, status)
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", whole)
            for at_s, step, value in points:
                row = ("val/acc", 0.0 if math.isnan(value) else value, round((BEGAN_S + at_s) * 1e3), name, step)
                database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", (*row, math.isnan(value)))
            for key, value in dict(params).items():
                database.execute("INSERT INTO params VALUES (?, ?, ?)", (key, str(value), name))
        return path

    return write


@pytest.fixture
def event_files(tmp_path, monkeypatch):
    """Write a run as TensorBoard's writer does."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def write(folder, points, began_s=BEGAN_S, tags=("val/acc",), settings=None):
        with monkeypatch.context() as then:
            then.setattr(time, "time", lambda: began_s)
            writer = EventFileWriter(str(tmp_path / folder))
        first = Event(wall_time=began_s)
        if settings is not None:
            told = HParamsPluginData()
            for name, value in settings.items():
                kind = {str: "string_value", bool: "bool_value"}.get(type(value), "number_value")
                setattr(told.session_start_info.hparams[name], kind, value)
            logged = first.summary.value.add(tag="_hparams_/session_start_info")
            logged.metadata.plugin_data.plugin_name = "hparams"
            logged.metadata.plugin_data.content = told.SerializeToString()
        writer.add_event(first)
        for at_s, step, value in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag in tags])
            writer.add_event(Event(wall_time=began_s + at_s, step=step, summary=summary))
        writer.close()
        return tmp_path / folder

    return write


@pytest.fixture
def wandb_file(tmp_path):
    """Write an offline run as W&B does: LevelDB's log format, with bodies that are cut at blocks of 32 KiB."""
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    def bodies(points, config, exit_code, resumed):
        begun = Record()
        begun.run.resumed = resumed
        begun.run.run_id, begun.run.display_name = "4cco", "fast"
        begun.run.start_time.FromNanoseconds(int(BEGAN_S * 1e9))
        for key, value in config.items():
            begun.run.config.update.add(key=key, value_json=json.dumps(value))
        yield begun
        for at_s, step, value in points:
            row = Record()
            for key, told in {"val/acc": value, "_timestamp": BEGAN_S + at_s, "_step": step}.items():
                row.history.item.add(nested_key=[key], value_json=json.dumps(told))
            yield row
        if exit_code is not None:
            end = Record()
            end.exit.exit_code = exit_code
            yield end

    def write(points, config=None, exit_code=0, resumed=False):
        data = bytearray(b":W&B\xe1\xbe\x00")
        for body in (each.SerializeToString() for each in bodies(points, config or {}, exit_code, resumed)):
            rest, first = body, True
            while first or rest:
                left = 32768 - len(data) % 32768
                if left < 7:
                    data += b"\0" * left
                    continue
                part, rest = rest[: left - 7], rest[left - 7 :]
                kind = (1 if first else 4) if not rest else (2 if first else 3)
                data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
                first = False
        path = tmp_path / "run-4cco.wandb"
        path.write_bytes(data)
        return path

    return write
