// Drives kafkajs; the command line is that of the Go package driver.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4js'
import * as zstd from '@bokuweb/zstd-wasm'

const { Kafka, CompressionTypes, CompressionCodecs } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})
await zstd.init()

const codecs = {
  default: undefined, none: CompressionTypes.None, gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
const say = (line) => process.stdout.write(line.replaceAll('\n', '; ') + '\n')
const stdinEnds = () => new Promise((resolve) => process.stdin.on('end', resolve).resume())

const client = (bootstrap) => new Kafka({
  brokers: bootstrap.split(','),
  logCreator: () => ({ namespace, label, log }) =>
    process.stderr.write(`${label} ${namespace} ${log.message} ${log.error ?? ''} ${log.stack ?? ''}\n`),
})

// One send at a time: kafkajs keeps no order among sends. And one for each key, with all of it that has come
// meanwhile: if the partitions of one send have several leaders, and one of them fails, kafkajs calls those of its
// partitions sent that are led now by a node that has answered for others.
async function produce(bootstrap, topic, mode, codec) {
  const producer = client(bootstrap).producer(mode === 'idempotent' ? { idempotent: true, maxInFlightRequests: 1 } : {})
  await producer.connect()
  let waiting = []
  let ended = false
  let wake = () => {}
  const input = createInterface({ input: process.stdin })
  input.on('line', (line) => { waiting.push(line); wake() })
  input.on('close', () => { ended = true; wake() })
  for (;;) {
    if (waiting.length === 0) {
      if (ended) break
      await new Promise((resolve) => { wake = resolve })
      continue
    }
    const byKey = new Map()
    for (const line of waiting) {
      const space = line.indexOf(' ')
      const key = line.slice(0, space)
      byKey.set(key, [...(byKey.get(key) ?? []), { key, value: line.slice(space + 1) }])
    }
    waiting = []
    for (const messages of byKey.values()) {
      try {
        await producer.send({ topic, messages, compression: codecs[codec] })
        for (const m of messages) say(`ack ${m.value} -1 -1`)
      } catch (err) {
        for (const m of messages) say(`fail ${m.value} ${err.name}: ${err.message}`)
      }
    }
  }
  await producer.disconnect()
}

async function consume(bootstrap, topic, group) {
  const consumer = client(bootstrap).consumer({ groupId: group })
  consumer.on(consumer.events.CRASH, ({ payload }) => say(`error crash, restart ${payload.restart}: ${payload.error}`))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => say(`rec ${partition} ${message.offset} ${message.value}`),
  })
  await stdinEnds()
  await consumer.disconnect()
}

const [command, ...args] = process.argv.slice(2)
switch (command) {
  case 'version':
    say(`kafkajs ${createRequire(import.meta.url)('kafkajs/package.json').version}`)
    break
  case 'produce':
    await produce(...args)
    break
  case 'consume':
    await consume(...args)
    break
  default:
    throw new Error(`unknown command ${command}`)
}
process.exit(0)
