"""Drives confluent-kafka; the command line is that of the Go package driver."""
import sys
import threading

import confluent_kafka
from confluent_kafka import Consumer, Producer


def say(line):
    sys.stdout.write(line.replace("\n", "; ") + "\n")
    sys.stdout.flush()


def produce(bootstrap, topic, mode, codec):
    config = {"bootstrap.servers": bootstrap}
    if codec != "default":
        config["compression.type"] = codec
    if mode == "idempotent":
        config["enable.idempotence"] = True
    producer = Producer(config)

    def told(err, msg):
        value = msg.value().decode()
        if err is not None:
            say(f"fail {value} {err}")
        else:
            say(f"ack {value} {msg.partition()} {msg.offset()}")

    for line in sys.stdin:
        key, _, value = line.rstrip("\n").partition(" ")
        producer.produce(topic, key=key, value=value, on_delivery=told)
        producer.poll(0)
    producer.flush()


def consume(bootstrap, topic, group):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        msg = consumer.poll(0.2)
        if msg is None:
            continue
        if msg.error():
            say(f"error {msg.error()}")
        else:
            say(f"rec {msg.partition()} {msg.offset()} {msg.value().decode()}")
    consumer.close()


def version():
    say(f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}")


{"version": version, "produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
