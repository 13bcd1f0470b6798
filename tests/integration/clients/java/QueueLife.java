import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A queue's life with the Java share consumer, told in lines of "what=outcome" on standard output.
 * Usage: QueueLife HOST:PORT [CASE...]. Written in the older language, like ClientHost.
 */
public class QueueLife {
    static final int PATIENCE_MS = 20000;
    static final String[] CASES = {
        "implicit", "kinds", "limit", "timeOut", "renewal", "closing", "latest", "committed", "recordLimit",
        "twoMembers", "mistakes", "administration", "protocols"
    };
    final String bootstrap;
    final Admin admin;
    int count = 0;

    QueueLife(String bootstrap) {
        this.bootstrap = bootstrap;
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        this.admin = AdminClient.create(config);
    }

    /** Whatever ends it is printed here: the launcher fails at an exception without a stack trace, as Kafka's are. */
    public static void main(String[] args) {
        int code = 1;
        try {
            new QueueLife(args[0]).live(Arrays.asList(args).subList(1, args.length));
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        System.exit(code);
    }

    void live(List names) throws Exception {
        for (int i = 0; i < CASES.length; i++) {
            if (names.isEmpty() || names.contains(CASES[i])) {
                QueueLife.class.getDeclaredMethod(CASES[i], new Class[0]).invoke(this, new Object[0]);
            }
        }
    }

    // --- tools ----------------------------------------------------------------------------------

    static void tell(String what, Object outcome) {
        System.out.println(what + "=" + outcome);
        System.out.flush();
    }

    static String errorOf(Throwable error) {
        Throwable cause = error;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName();
    }

    static String outcomeOf(KafkaFuture future) throws Exception {
        try {
            future.get();
            return "done";
        } catch (ExecutionException error) {
            return errorOf(error);
        }
    }

    /** A new topic of one partition with records 0..n-1, and a group of the same name that reads it. */
    String queue(int records, String... settings) throws Exception {
        String name = "queue-" + (++count);
        admin.createTopics(Collections.singleton(new NewTopic(name, 1, (short) 1))).all().get();
        Thread.sleep(200);
        List all = new ArrayList(Arrays.asList(settings));
        if (!all.contains("share.auto.offset.reset")) {
            all.add("share.auto.offset.reset");
            all.add("earliest");
        }
        set(name, all);
        produce(name, 0, records);
        return name;
    }

    void set(String group, List settings) throws Exception {
        Collection changes = new ArrayList();
        for (int i = 0; i < settings.size(); i += 2) {
            ConfigEntry entry = new ConfigEntry((String) settings.get(i), (String) settings.get(i + 1));
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        }
        Map request = new HashMap();
        request.put(new ConfigResource(ConfigResource.Type.GROUP, group), changes);
        admin.incrementalAlterConfigs(request).all().get();
    }

    KafkaProducer producer(String transactionalId) {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer(config);
    }

    void produce(String topic, int from, int to) throws Exception {
        KafkaProducer producer = producer(null);
        for (int i = from; i < to; i++) {
            producer.send(new ProducerRecord(topic, Integer.valueOf(0), "k", "" + i));
        }
        producer.flush();
        producer.close();
    }

    KafkaShareConsumer consumer(String group, boolean explicit, String... more) {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        config.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        for (int i = 0; i < more.length; i += 2) {
            config.put(more[i], more[i + 1]);
        }
        KafkaShareConsumer consumer = new KafkaShareConsumer(config);
        consumer.subscribe(Collections.singleton(group));
        return consumer;
    }

    /** Records of the first poll that has some, or none after the time. */
    static List poll(KafkaShareConsumer consumer, long millis) {
        List found = new ArrayList();
        long end = System.currentTimeMillis() + millis;
        while (found.isEmpty() && System.currentTimeMillis() < end) {
            Iterator records = consumer.poll(Duration.ofMillis(Math.min(500, millis))).iterator();
            while (records.hasNext()) {
                found.add(records.next());
            }
        }
        return found;
    }

    static String told(List records) {
        StringBuilder text = new StringBuilder();
        for (Object each : records) {
            ConsumerRecord record = (ConsumerRecord) each;
            text.append(text.length() == 0 ? "" : ",").append(record.value()).append("x");
            text.append(record.deliveryCount().isPresent() ? "" + record.deliveryCount().get() : "?");
        }
        return text.toString();
    }

    static void acknowledge(KafkaShareConsumer consumer, List records, AcknowledgeType type) {
        for (Object record : records) {
            consumer.acknowledge((ConsumerRecord) record, type);
        }
    }

    static String commit(KafkaShareConsumer consumer) {
        Set outcomes = new TreeSet();
        for (Object outcome : consumer.commitSync(Duration.ofSeconds(20)).values()) {
            Optional error = (Optional) outcome;
            outcomes.add(error.isPresent() ? errorOf((Throwable) error.get()) : "done");
        }
        return outcomes.toString();
    }

    // --- cases ----------------------------------------------------------------------------------

    void implicit() throws Exception {
        String queue = queue(5);
        KafkaShareConsumer first = consumer(queue, false);
        tell("implicit.delivered", told(poll(first, PATIENCE_MS)));
        tell("implicit.commit", commit(first));
        tell("implicit.again", told(poll(first, 800)));
        first.close();
        KafkaShareConsumer second = consumer(queue, false);
        produce(queue, 5, 7);
        tell("implicit.next", told(poll(second, PATIENCE_MS)));
        second.close();
    }

    void kinds() throws Exception {
        String queue = queue(4);
        KafkaShareConsumer consumer = consumer(queue, true);
        List records = poll(consumer, PATIENCE_MS);
        consumer.acknowledge((ConsumerRecord) records.get(0), AcknowledgeType.ACCEPT);
        consumer.acknowledge((ConsumerRecord) records.get(1), AcknowledgeType.RELEASE);
        consumer.acknowledge((ConsumerRecord) records.get(2), AcknowledgeType.REJECT);
        consumer.acknowledge((ConsumerRecord) records.get(3), AcknowledgeType.RELEASE);
        tell("kinds.commit", commit(consumer));
        records = poll(consumer, PATIENCE_MS);
        tell("kinds.redelivered", told(records));
        acknowledge(consumer, records, AcknowledgeType.ACCEPT);
        tell("kinds.accepted", commit(consumer));
        tell("kinds.left", told(poll(consumer, 800)));
        consumer.close();
    }

    void limit() throws Exception {
        String queue = queue(1, "share.delivery.count.limit", "3");
        KafkaShareConsumer consumer = consumer(queue, true);
        for (int i = 1; i <= 3; i++) {
            List records = poll(consumer, PATIENCE_MS);
            tell("limit.delivery." + i, told(records));
            acknowledge(consumer, records, AcknowledgeType.RELEASE);
            commit(consumer);
        }
        tell("limit.over", told(poll(consumer, 800)));
        consumer.close();
    }

    void timeOut() throws Exception {
        String queue = queue(2, "share.record.lock.duration.ms", "2000");
        KafkaShareConsumer slow = consumer(queue, true);
        List held = poll(slow, PATIENCE_MS);
        tell("timeout.first", told(held));
        tell("timeout.lock", slow.acquisitionLockTimeoutMs());
        KafkaShareConsumer quick = consumer(queue, true);
        List records = poll(quick, PATIENCE_MS);
        tell("timeout.redelivered", told(records));
        acknowledge(quick, records, AcknowledgeType.ACCEPT);
        tell("timeout.accepted", commit(quick));
        quick.close();
        acknowledge(slow, held, AcknowledgeType.ACCEPT);
        tell("timeout.late", commit(slow));
        slow.close();
    }

    void renewal() throws Exception {
        String queue = queue(1, "share.record.lock.duration.ms", "3000");
        KafkaShareConsumer slow = consumer(queue, true);
        List held = poll(slow, PATIENCE_MS);
        KafkaShareConsumer other = consumer(queue, true);
        tell("renewal.other", told(poll(other, 1000)));
        for (int i = 0; i < 2; i++) {
            acknowledge(slow, held, AcknowledgeType.RENEW);
            tell("renewal." + i, commit(slow));
            held = poll(slow, PATIENCE_MS); // what was renewed is handed out again
            tell("renewal.held." + i, told(held));
            tell("renewal.other." + i, told(poll(other, 1600)));
        }
        acknowledge(slow, held, AcknowledgeType.ACCEPT);
        tell("renewal.accepted", commit(slow));
        tell("renewal.left", told(poll(other, 800)));
        slow.close();
        other.close();
    }

    void closing() throws Exception {
        String queue = queue(3);
        KafkaShareConsumer first = consumer(queue, true);
        List records = poll(first, PATIENCE_MS);
        tell("closing.held", told(records));
        first.acknowledge((ConsumerRecord) records.get(0), AcknowledgeType.ACCEPT);
        first.close();
        KafkaShareConsumer second = consumer(queue, true);
        List again = poll(second, PATIENCE_MS);
        tell("closing.redelivered", again.size() + " from " + ((ConsumerRecord) again.get(0)).value());
        second.close();
    }

    void latest() throws Exception {
        String queue = queue(3, "share.auto.offset.reset", "latest");
        KafkaShareConsumer consumer = consumer(queue, false);
        tell("latest.old", told(poll(consumer, 2500)));
        produce(queue, 3, 5);
        tell("latest.new", told(poll(consumer, PATIENCE_MS)));
        consumer.close();
    }

    void committed() throws Exception {
        String queue = queue(0, "share.isolation.level", "read_committed");
        KafkaProducer producer = producer("tx-" + queue);
        producer.initTransactions();
        for (int round = 0; round < 4; round++) {
            producer.beginTransaction();
            for (int i = 0; i < 2; i++) {
                producer.send(new ProducerRecord(queue, Integer.valueOf(0), "k", round + "." + i)).get();
            }
            if (round % 2 == 0) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord(queue, Integer.valueOf(0), "k", "open")).get();
        KafkaShareConsumer consumer = consumer(queue, false);
        List seen = poll(consumer, PATIENCE_MS);
        List more = poll(consumer, 800);
        seen.addAll(more);
        tell("committed.seen", told(seen));
        producer.commitTransaction();
        tell("committed.then", told(poll(consumer, PATIENCE_MS)));
        consumer.close();
        producer.close();
    }

    void recordLimit() throws Exception {
        String queue = queue(10);
        KafkaShareConsumer consumer =
            consumer(queue, true, "max.poll.records", "3", "share.acquire.mode", "record_limit");
        for (int i = 0; i < 3; i++) {
            List records = poll(consumer, PATIENCE_MS);
            tell("recordlimit." + i, told(records));
            acknowledge(consumer, records, AcknowledgeType.ACCEPT);
            commit(consumer);
        }
        consumer.close();
    }

    void twoMembers() throws Exception {
        String queue = queue(0);
        KafkaShareConsumer one = consumer(queue, false);
        KafkaShareConsumer two = consumer(queue, false);
        poll(one, 800);
        poll(two, 800);
        List seen = new ArrayList();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        int produced = 0;
        while (seen.size() < 40 && System.currentTimeMillis() < end) {
            if (produced < 40) {
                produce(queue, produced, produced + 10);
                produced += 10;
            }
            for (Object record : poll(one, 300)) {
                seen.add(((ConsumerRecord) record).value());
            }
            for (Object record : poll(two, 300)) {
                seen.add(((ConsumerRecord) record).value());
            }
        }
        tell("two.seen", seen.size() + " of which different " + new HashSet(seen).size());
        one.close();
        two.close();
    }

    void mistakes() throws Exception {
        String queue = queue(2);
        KafkaShareConsumer consumer = consumer(queue, true);
        List records = poll(consumer, PATIENCE_MS);
        try {
            consumer.poll(Duration.ofMillis(100));
            tell("mistakes.unacknowledged", "allowed");
        } catch (Exception error) {
            tell("mistakes.unacknowledged", errorOf(error));
        }
        acknowledge(consumer, records, AcknowledgeType.ACCEPT);
        tell("mistakes.commit", commit(consumer));
        try {
            acknowledge(consumer, records, AcknowledgeType.ACCEPT);
            tell("mistakes.twice", "allowed");
        } catch (Exception error) {
            tell("mistakes.twice", errorOf(error));
        }
        consumer.close();
    }

    void administration() throws Exception {
        String queue = queue(6);
        TopicPartition partition = new TopicPartition(queue, 0);
        KafkaShareConsumer consumer = consumer(queue, true);
        List records = poll(consumer, PATIENCE_MS);
        acknowledge(consumer, records.subList(0, 4), AcknowledgeType.ACCEPT);
        acknowledge(consumer, records.subList(4, 5), AcknowledgeType.RELEASE);
        acknowledge(consumer, records.subList(5, 6), AcknowledgeType.ACCEPT);
        tell("admin.commit", commit(consumer));
        ShareGroupDescription group = described(queue);
        tell("admin.stable", group.groupState() + " " + group.members().size());
        tell("admin.alter.busy", outcomeOf(alter(queue, partition, 2)));
        tell("admin.deleteoffsets.busy", outcomeOf(
            admin.deleteShareGroupOffsets(queue, Collections.singleton(queue)).all()));
        tell("admin.delete.busy", outcomeOf(admin.deleteShareGroups(Collections.singleton(queue)).all()));
        consumer.close();
        tell("admin.empty", described(queue).groupState());
        tell("admin.offset", located(queue, partition));
        String listed = "";
        for (Object each : (Collection) admin.listGroups().all().get()) {
            GroupListing listing = (GroupListing) each;
            if (listing.groupId().equals(queue)) {
                listed = listing.type().get() + " " + listing.protocol() + " " + listing.groupState().get();
            }
        }
        tell("admin.listed", listed);
        tell("admin.alter", outcomeOf(alter(queue, partition, 2)));
        tell("admin.altered", located(queue, partition));
        consumer = consumer(queue, true);
        records = poll(consumer, PATIENCE_MS);
        tell("admin.reread", told(records));
        acknowledge(consumer, records, AcknowledgeType.ACCEPT);
        commit(consumer);
        consumer.close();
        tell("admin.deleteoffsets", outcomeOf(
            admin.deleteShareGroupOffsets(queue, Collections.singleton(queue)).all()));
        tell("admin.delete", outcomeOf(admin.deleteShareGroups(Collections.singleton(queue)).all()));
        tell("admin.gone", outcomeOf(admin.describeShareGroups(Collections.singleton(queue)).all()));
        tell("admin.delete.unknown", outcomeOf(admin.deleteShareGroups(Collections.singleton("none")).all()));
        tell("admin.alter.unknown", outcomeOf(alter("none-" + queue, partition, 0)));
        tell("admin.consumerview", outcomeOf(admin.describeConsumerGroups(Collections.singleton(queue)).all()));
        try {
            set(queue, Arrays.asList(new Object[] {"share.auto.offset.reset", "sideways"}));
            tell("admin.config", "allowed");
        } catch (Exception error) {
            tell("admin.config", errorOf(error));
        }
    }

    KafkaFuture alter(String group, TopicPartition partition, long offset) {
        return admin.alterShareGroupOffsets(group, Collections.singletonMap(partition, Long.valueOf(offset))).all();
    }

    ShareGroupDescription described(String group) throws Exception {
        return (ShareGroupDescription) ((Map) admin.describeShareGroups(Collections.singleton(group)).all().get())
            .get(group);
    }

    String located(String group, TopicPartition partition) throws Exception {
        ListShareGroupOffsetsSpec spec =
            new ListShareGroupOffsetsSpec().topicPartitions(Collections.singleton(partition));
        Map found = (Map) ((Map) admin.listShareGroupOffsets(Collections.singletonMap(group, spec)).all().get())
            .get(group);
        SharePartitionOffsetInfo info = (SharePartitionOffsetInfo) found.get(partition);
        return info == null ? "none" : info.startOffset() + " lag " + info.lag();
    }

    void protocols() throws Exception {
        String queue = queue(1);
        KafkaShareConsumer share = consumer(queue, false);
        poll(share, PATIENCE_MS);
        commit(share);
        for (String protocol : new String[] {"classic", "consumer"}) {
            KafkaConsumer other = groupConsumer(queue, protocol);
            try {
                other.subscribe(Collections.singleton(queue));
                for (int i = 0; i < 5; i++) {
                    other.poll(Duration.ofMillis(500));
                }
                tell("protocols." + protocol, "allowed");
            } catch (Exception error) {
                tell("protocols." + protocol, errorOf(error));
            }
            other.close();
        }
        share.close();
        String name = queue(1);
        KafkaConsumer holder = groupConsumer(name, "consumer");
        holder.subscribe(Collections.singleton(name));
        for (int i = 0; i < 4; i++) {
            holder.poll(Duration.ofMillis(500));
        }
        KafkaShareConsumer late = consumer(name, false);
        try {
            poll(late, 3000);
            tell("protocols.share", "allowed");
        } catch (Exception error) {
            tell("protocols.share", errorOf(error));
        }
        late.close();
        holder.close();
    }

    KafkaConsumer groupConsumer(String group, String protocol) {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("group.protocol", protocol);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        return new KafkaConsumer(config);
    }
}
