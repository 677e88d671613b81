// Drives @platformatic/kafka; the command line is that of the Go package driver.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Consumer, Producer, ProduceAcks, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const say = (line) => process.stdout.write(line.replaceAll('\n', '; ') + '\n')
const why = (err) => [err, ...(err.errors ?? [])].map((e) => `${e.name}: ${e.message}`).join(', ')

// One send at a time, with all of a key that has come meanwhile. A send of several partitions goes
// to the leader of the first of them when it is tried again, so those that have got another are
// refused until the client gives up; applications that must not lose records send as here.
async function produce(bootstrap, topic, mode, codec) {
  const options = { clientId: 'edged-interop', bootstrapBrokers: bootstrap.split(','), serializers: stringSerializers }
  if (codec !== 'default') options.compression = codec
  if (mode === 'all') options.acks = ProduceAcks.ALL
  if (mode === 'idempotent') options.idempotent = true
  const producer = new Producer(options)
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
    const byKey = Object.groupBy(waiting.map((line) => {
      const space = line.indexOf(' ')
      return { topic, key: line.slice(0, space), value: line.slice(space + 1) }
    }), (m) => m.key)
    waiting = []
    for (const messages of Object.values(byKey)) {
      try {
        await producer.send({ messages })
        for (const m of messages) say(`ack ${m.value} -1 -1`)
      } catch (err) {
        for (const m of messages) say(`fail ${m.value} ${why(err)}`)
      }
    }
  }
  await producer.close()
}

// A stream ends with the first fetch that fails four times, and it asks the node that led a partition
// when it began four times: so the application begins again.
async function consume(bootstrap, topic, group) {
  let ended = false
  const end = new Promise((resolve) => process.stdin.on('end', () => { ended = true; resolve() }).resume())
  while (!ended) {
    const consumer = new Consumer({
      clientId: 'edged-interop', bootstrapBrokers: bootstrap.split(','), groupId: group, deserializers: stringDeserializers,
    })
    try {
      const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: true })
      stream.on('data', (m) => say(`rec ${m.partition} ${m.offset} ${m.value}`))
      const broken = new Promise((resolve) => stream.on('error', (err) => { say(`error ${why(err)}`); resolve() }))
      await Promise.race([end, broken])
      if (ended) await stream.close()
    } catch (err) {
      say(`error ${why(err)}`)
    }
    await consumer.close(true)
  }
}

const [command, ...args] = process.argv.slice(2)
switch (command) {
  case 'version': {
    const { version } = JSON.parse(readFileSync('node_modules/@platformatic/kafka/package.json', 'utf8'))
    say(`@platformatic/kafka ${version}, Node.js ${process.version}`)
    break
  }
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
