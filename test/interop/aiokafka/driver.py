"""Drives aiokafka; the command line is that of the Go package driver."""
import asyncio
import logging
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

logging.basicConfig(level=logging.WARNING)


def say(line):
    sys.stdout.write(line.replace("\n", "; ") + "\n")
    sys.stdout.flush()


async def stdin():
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def produce(bootstrap, topic, mode, codec):
    config = {}
    if codec not in ("default", "none"):
        config["compression_type"] = codec
    if mode == "all":
        config["acks"] = "all"
    if mode == "idempotent":
        config["enable_idempotence"] = True
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap.split(","), **config)
    await producer.start()

    def told(value):
        def tell(future):
            if future.exception() is not None:
                say(f"fail {value} {future.exception()!r}")
            else:
                say(f"ack {value} {future.result().partition} {future.result().offset}")
        return tell

    async for line in await stdin():
        key, _, value = line.decode().rstrip("\n").partition(" ")
        future = await producer.send(topic, key=key.encode(), value=value.encode())
        future.add_done_callback(told(value))
    await producer.stop()


async def consume(bootstrap, topic, group):
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest",
        group_id=None if group == "-" else group)
    await consumer.start()
    ended = asyncio.create_task((await stdin()).read())
    while not ended.done():
        try:
            polled = await consumer.getmany(timeout_ms=200)
        except KafkaError as err:
            say(f"error {err!r}")
            continue
        for records in polled.values():
            for r in records:
                say(f"rec {r.partition} {r.offset} {r.value.decode()}")
    await consumer.stop()


async def version():
    say(f"aiokafka {aiokafka.__version__}")


asyncio.run({"version": version, "produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:]))
