"""Drives kafka-python; the command line is that of the Go package driver."""
import logging
import sys
import threading

import kafka
from kafka import KafkaConsumer, KafkaProducer

logging.basicConfig(level=logging.WARNING)
lock = threading.Lock()


def say(line):
    with lock:
        sys.stdout.write(line.replace("\n", "; ") + "\n")
        sys.stdout.flush()


def produce(bootstrap, topic, mode, codec):
    config = {"bootstrap_servers": bootstrap.split(",")}
    if codec not in ("default", "none"):
        config["compression_type"] = codec
    if mode == "all":  # idempotence is its default
        config["enable_idempotence"] = False
    producer = KafkaProducer(**config)

    def kept(value):
        return lambda meta: say(f"ack {value} {meta.partition} {meta.offset}")

    def failed(value):
        return lambda err: say(f"fail {value} {err!r}")

    for line in sys.stdin:
        key, _, value = line.rstrip("\n").partition(" ")
        future = producer.send(topic, key=key.encode(), value=value.encode())
        future.add_callback(kept(value))
        future.add_errback(failed(value))
    producer.flush()
    producer.close()


def consume(bootstrap, topic, group):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest",
        group_id=None if group == "-" else group)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        try:
            polled = consumer.poll(timeout_ms=200)
        except kafka.errors.KafkaError as err:
            say(f"error {err!r}")
            continue
        for records in polled.values():
            for r in records:
                say(f"rec {r.partition} {r.offset} {r.value.decode()}")
    consumer.close()


def version():
    say(f"kafka-python {kafka.__version__}")


{"version": version, "produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
