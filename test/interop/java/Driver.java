import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Drives Kafka's own client for Java; the command line is that of the Go package driver. */
public class Driver {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "version":
                say("kafka-clients " + AppInfoParser.getVersion());
                break;
            case "produce":
                produce(args[1], args[2], args[4]);
                break;
            case "consume":
                consume(args[1], args[2], args[3]);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ';'));
        System.out.flush();
    }

    /** The default settings are acks=all and idempotence, so there is but one mode. */
    static void produce(String bootstrap, String topic, String codec) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        if (!codec.equals("default")) {
            p.put("compression.type", codec);
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
            String line;
            var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8));
            while ((line = in.readLine()) != null) {
                int space = line.indexOf(' ');
                String value = line.substring(space + 1);
                producer.send(new ProducerRecord<>(topic, line.substring(0, space), value), (kept, err) -> {
                    if (err == null) {
                        say("ack " + value + " " + kept.partition() + " " + kept.offset());
                    } else {
                        say("fail " + value + " " + err);
                    }
                });
            }
        }
    }

    static void consume(String bootstrap, String topic, String group) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        p.put("auto.offset.reset", "earliest");
        boolean alone = group.equals("-");
        if (!alone) {
            p.put("group.id", group);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p);
        AtomicBoolean over = new AtomicBoolean();
        Thread stdin = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (java.io.IOException e) {
                say("error " + e);
            }
            over.set(true);
            consumer.wakeup();
        });
        stdin.setDaemon(true);
        stdin.start();
        if (alone) {
            List<TopicPartition> all = new ArrayList<>();
            for (PartitionInfo i : consumer.partitionsFor(topic)) {
                all.add(new TopicPartition(topic, i.partition()));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
        } else {
            consumer.subscribe(Collections.singleton(topic));
        }
        try (consumer) {
            while (!over.get()) {
                try {
                    for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofSeconds(1))) {
                        say("rec " + r.partition() + " " + r.offset() + " " + r.value());
                    }
                } catch (WakeupException e) {
                    // stdin has ended
                } catch (RuntimeException e) {
                    say("error " + e);
                }
            }
        }
    }
}
