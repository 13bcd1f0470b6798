import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional life with the Java client, told in lines of "what=outcome" on standard output.
 * Usage: TransactionLife HOST:PORT. Written in the older language, like ClientHost.
 */
public class TransactionLife {
    final String bootstrap;

    TransactionLife(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** Whatever ends it is printed here: the launcher fails at an exception without a stack trace, as Kafka's are. */
    public static void main(String[] args) {
        int code = 1;
        try {
            new TransactionLife(args[0]).live();
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        System.exit(code);
    }

    void live() throws Exception {
        commitAndAbort();
        offsets();
        zombie();
        many();
        listed();
    }

    KafkaProducer producer(String id) {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        KafkaProducer producer = new KafkaProducer(config);
        producer.initTransactions();
        return producer;
    }

    KafkaConsumer consumer(String group) {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        return new KafkaConsumer(config);
    }

    void send(KafkaProducer producer, String topic, int partition, String value) {
        producer.send(new ProducerRecord(topic, Integer.valueOf(partition), null, value));
    }

    void tell(String what, Object outcome) {
        System.out.println(what + "=" + outcome);
    }

    /** Everything committed in both partitions, up to the records named "end". */
    List committed(String topic, int ends) {
        KafkaConsumer consumer = consumer("reader-" + topic);
        List partitions = Arrays.asList(new Object[] {new TopicPartition(topic, 0), new TopicPartition(topic, 1)});
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        List values = new ArrayList();
        int seen = 0;
        long deadline = System.currentTimeMillis() + 20000;
        while (seen < ends && System.currentTimeMillis() < deadline) {
            Iterator found = consumer.poll(Duration.ofMillis(200)).iterator();
            while (found.hasNext()) {
                Object value = ((ConsumerRecord) found.next()).value();
                if (value.equals("end")) seen++;
                else values.add(value);
            }
        }
        consumer.close();
        Collections.sort(values);
        return values;
    }

    void commitAndAbort() throws Exception {
        KafkaProducer producer = producer("java-life");
        for (int number = 0; number < 6; number++) {
            producer.beginTransaction();
            send(producer, "life", 0, "a" + number);
            send(producer, "life", 1, "b" + number);
            if (number % 2 == 0) producer.commitTransaction();
            else {
                producer.flush();
                producer.abortTransaction();
            }
        }
        producer.beginTransaction();
        producer.abortTransaction();
        producer.beginTransaction();
        send(producer, "life", 0, "end");
        send(producer, "life", 1, "end");
        producer.commitTransaction();
        producer.close();
        tell("committed", committed("life", 2));
    }

    void offsets() throws Exception {
        KafkaProducer producer = producer("java-offsets");
        KafkaConsumer consumer = consumer("java-group");
        TopicPartition partition = new TopicPartition("life", 0);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("java-group");
        producer.beginTransaction();
        send(producer, "life", 1, "c");
        producer.sendOffsetsToTransaction(Collections.singletonMap(partition, new OffsetAndMetadata(3)), group);
        producer.commitTransaction();
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Collections.singletonMap(partition, new OffsetAndMetadata(5)), group);
        producer.abortTransaction();
        Map found = consumer.committed(Collections.singleton(partition));
        tell("offset", Long.valueOf(((OffsetAndMetadata) found.get(partition)).offset()));
        consumer.close();
        producer.close();
    }

    void zombie() throws Exception {
        KafkaProducer first = producer("java-zombie");
        first.beginTransaction();
        send(first, "zombies", 0, "lost");
        first.flush();
        KafkaProducer second = producer("java-zombie");
        try {
            first.commitTransaction();
            tell("zombie", "committed");
        } catch (Exception error) {
            tell("zombie", error.getClass().getSimpleName());
        }
        second.beginTransaction();
        send(second, "zombies", 0, "kept");
        send(second, "zombies", 0, "end");
        send(second, "zombies", 1, "end");
        second.commitTransaction();
        first.close(Duration.ZERO);
        second.close();
        tell("survived", committed("zombies", 2));
    }

    void many() throws Exception {
        KafkaProducer producer = producer("java-many");
        long[] took = new long[200];
        for (int number = 0; number < took.length; number++) {
            long began = System.nanoTime();
            producer.beginTransaction();
            send(producer, "many", number % 2, "m");
            producer.commitTransaction();
            took[number] = (System.nanoTime() - began) / 1000;
        }
        producer.beginTransaction();
        send(producer, "many", 0, "end");
        send(producer, "many", 1, "end");
        producer.commitTransaction();
        producer.close();
        Arrays.sort(took);
        tell("many", Integer.valueOf(committed("many", 2).size()));
        tell("median_us", Long.valueOf(took[took.length / 2]));
        tell("p99_us", Long.valueOf(took[took.length * 99 / 100]));
    }

    void listed() throws Exception {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        Admin admin = AdminClient.create(config);
        List found = new ArrayList();
        Iterator each = ((java.util.Collection) admin.listTransactions().all().get()).iterator();
        while (each.hasNext()) found.add(((TransactionListing) each.next()).transactionalId());
        Collections.sort(found);
        tell("listed", found);
        tell("described", admin.describeTransactions(Collections.singleton("java-life")).all().get()
                .toString().contains("CompleteCommit") ? "CompleteCommit" : "another state");
        admin.close(Duration.ZERO);
    }
}
