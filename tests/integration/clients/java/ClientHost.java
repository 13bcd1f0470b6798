import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client behind the suite's driver interface: a JSON line a request on standard input, a
 * JSON line an answer on standard output. Usage: ClientHost HOST:PORT
 *
 * Written without lambdas, diamonds or inferred types on purpose: a Java runtime without the
 * compiler module cannot launch a source file, and there Janino, which comes with Spark and knows
 * only the older language, compiles it instead.
 */
public class ClientHost {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long WAIT_S = 30;

    final String bootstrap;
    final Admin admin;
    final Map producers = new HashMap();
    final Map members = new HashMap();
    int opened = 0;

    ClientHost(String bootstrap) {
        this.bootstrap = bootstrap;
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        this.admin = AdminClient.create(config);
    }

    /** Whatever ends it is printed here: the launcher fails at an exception without a stack trace, as Kafka's are. */
    public static void main(String[] args) {
        int code = 1;
        try {
            serve(args[0]);
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.exit(code);
    }

    static void serve(String bootstrap) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // what a library prints must not end up among the answers
        ClientHost host = new ClientHost(bootstrap);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line = requests.readLine();
        while (line != null) {
            answers.println(JSON.writeValueAsString(host.answer(JSON.readTree(line))));
            answers.flush();
            line = requests.readLine();
        }
        host.close();
    }

    ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Object found = perform(request.get("op").asText(), request.get("args"));
            answer.set("ok", JSON.valueToTree(found));
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cause.printStackTrace();
            ObjectNode described = answer.putObject("error");
            described.put("code", (int) Errors.forException(cause).code());
            described.put("message", cause.toString());
        }
        return answer;
    }

    Object perform(String op, JsonNode args) throws Exception {
        if (op.equals("produce")) return produce(args);
        if (op.equals("read")) return read(args);
        if (op.equals("offset")) return offset(args);
        if (op.equals("create_topic")) return createTopic(args);
        if (op.equals("delete_topic")) return get(admin.deleteTopics(Collections.singletonList(text(args, "topic"))).all());
        if (op.equals("topics")) return new ArrayList((Collection) get(admin.listTopics().names()));
        if (op.equals("partition_count")) return partitionCount(text(args, "topic"));
        if (op.equals("config")) return config(text(args, "topic"));
        if (op.equals("alter_config")) return alterConfig(args);
        if (op.equals("create_partitions")) return createPartitions(args);
        if (op.equals("delete_records")) return deleteRecords(args);
        if (op.equals("groups")) return groups();
        if (op.equals("describe_group")) return describeGroup(text(args, "group"));
        if (op.equals("delete_group")) return get(admin.deleteConsumerGroups(Collections.singletonList(text(args, "group"))).all());
        if (op.equals("committed")) return committed(text(args, "group"), text(args, "topic"));
        if (op.equals("alter_offsets")) return get(admin.alterConsumerGroupOffsets(text(args, "group"), positions(args, "offsets")).all());
        if (op.equals("join")) return join(args.get("membership"));
        Member member = (Member) members.get(Integer.valueOf(args.get("handle").asInt()));
        if (op.equals("member")) return member.state();
        if (op.equals("commit")) return member.commit(positions(args, "offsets"));
        if (op.equals("leave")) {
            members.remove(Integer.valueOf(args.get("handle").asInt()));
            return member.leave();
        }
        throw new IllegalArgumentException("no such operation: " + op);
    }

    // -- values ------------------------------------------------------------------------------

    static Object get(KafkaFuture future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    static String text(JsonNode node, String name) {
        JsonNode found = node.get(name);
        return found == null || found.isNull() ? null : found.asText();
    }

    static JsonNode item(JsonNode list, int index) {
        return (JsonNode) list.get(index);
    }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.get("b64").asText());
    }

    static ObjectNode packed(byte[] bytes) {
        if (bytes == null) return null;
        ObjectNode node = JSON.createObjectNode();
        node.put("b64", Base64.getEncoder().encodeToString(bytes));
        return node;
    }

    static Map numbers(JsonNode byPartition) {
        Map found = new HashMap();
        Iterator names = byPartition.fieldNames();
        while (names.hasNext()) {
            String name = (String) names.next();
            found.put(Integer.valueOf(name), Long.valueOf(byPartition.get(name).asLong()));
        }
        return found;
    }

    static Map positions(JsonNode args, String name) {
        Map found = new HashMap();
        Map offsets = numbers(args.get(name));
        for (Iterator i = offsets.keySet().iterator(); i.hasNext(); ) {
            Integer partition = (Integer) i.next();
            long offset = ((Long) offsets.get(partition)).longValue();
            found.put(new TopicPartition(text(args, "topic"), partition.intValue()), new OffsetAndMetadata(offset));
        }
        return found;
    }

    static Map record(ConsumerRecord record) {
        Map fields = new HashMap();
        fields.put("topic", record.topic());
        fields.put("partition", Integer.valueOf(record.partition()));
        fields.put("offset", Long.valueOf(record.offset()));
        fields.put("key", packed((byte[]) record.key()));
        fields.put("value", packed((byte[]) record.value()));
        List headers = new ArrayList();
        Header[] given = record.headers().toArray();
        for (int i = 0; i < given.length; i++) {
            List pair = new ArrayList();
            pair.add(given[i].key());
            pair.add(packed(given[i].value()));
            headers.add(pair);
        }
        fields.put("headers", headers);
        fields.put("timestamp_ms", Long.valueOf(record.timestamp()));
        fields.put("append_time", Boolean.valueOf(record.timestampType() == TimestampType.LOG_APPEND_TIME));
        return fields;
    }

    static List pairs(Collection places) {
        List found = new ArrayList();
        for (Iterator i = places.iterator(); i.hasNext(); ) {
            TopicPartition place = (TopicPartition) i.next();
            List pair = new ArrayList();
            pair.add(place.topic());
            pair.add(Integer.valueOf(place.partition()));
            found.add(pair);
        }
        return found;
    }

    // -- records -----------------------------------------------------------------------------

    KafkaProducer producer(String codec, int maxRequestBytes) {
        String name = codec + maxRequestBytes;
        if (!producers.containsKey(name)) {
            Map config = new HashMap();
            config.put("bootstrap.servers", bootstrap);
            config.put("acks", "all");
            config.put("compression.type", codec);
            config.put("max.request.size", Integer.valueOf(maxRequestBytes));
            config.put("buffer.memory", Integer.valueOf(64 << 20));
            config.put("linger.ms", Integer.valueOf(20));
            config.put("metadata.max.age.ms", Integer.valueOf(1000));
            config.put("delivery.timeout.ms", Integer.valueOf(40000));
            config.put("request.timeout.ms", Integer.valueOf(15000));
            config.put("max.block.ms", Integer.valueOf(20000));
            producers.put(name, new KafkaProducer(config, new ByteArraySerializer(), new ByteArraySerializer()));
        }
        return (KafkaProducer) producers.get(name);
    }

    Object produce(JsonNode args) throws Exception {
        KafkaProducer producer = producer(text(args, "codec"), args.get("max_request_bytes").asInt());
        List futures = new ArrayList();
        JsonNode messages = args.get("messages");
        for (int i = 0; i < messages.size(); i++) {
            futures.add(producer.send(outgoing(text(args, "topic"), item(messages, i))));
        }
        producer.flush();
        List sent = new ArrayList();
        for (Iterator i = futures.iterator(); i.hasNext(); ) {
            RecordMetadata place = (RecordMetadata) ((Future) i.next()).get(WAIT_S, TimeUnit.SECONDS);
            Map fields = new HashMap();
            fields.put("partition", Integer.valueOf(place.partition()));
            fields.put("offset", Long.valueOf(place.offset()));
            fields.put("timestamp_ms", Long.valueOf(place.timestamp()));
            sent.add(fields);
        }
        return sent;
    }

    static ProducerRecord outgoing(String topic, JsonNode message) {
        List headers = new ArrayList();
        JsonNode given = message.get("headers");
        for (int i = 0; i < given.size(); i++) {
            JsonNode pair = item(given, i);
            headers.add(new RecordHeader(item(pair, 0).asText(), bytes(item(pair, 1))));
        }
        JsonNode partition = message.get("partition");
        JsonNode timestamp = message.get("timestamp_ms");
        return new ProducerRecord(
            topic,
            partition.isNull() ? null : Integer.valueOf(partition.asInt()),
            timestamp.isNull() ? null : Long.valueOf(timestamp.asLong()),
            bytes(message.get("key")),
            bytes(message.get("value")),
            headers);
    }

    Map consumerConfig() {
        Map config = new HashMap();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", Boolean.FALSE);
        config.put("auto.offset.reset", "earliest");
        config.put("fetch.max.wait.ms", Integer.valueOf(100));
        config.put("metadata.max.age.ms", Integer.valueOf(1000));
        return config;
    }

    KafkaConsumer consumer(Map config) {
        return new KafkaConsumer(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Object read(JsonNode args) throws Exception {
        KafkaConsumer consumer = consumer(consumerConfig());
        List found = new ArrayList();
        int count = args.get("count").asInt();
        long deadline = System.nanoTime() + (long) (args.get("timeout_s").asDouble() * 1e9);
        try {
            Map start = positions(args, "start");
            consumer.assign(start.keySet());
            for (Iterator i = start.keySet().iterator(); i.hasNext(); ) {
                TopicPartition place = (TopicPartition) i.next();
                consumer.seek(place, ((OffsetAndMetadata) start.get(place)).offset());
            }
            while (found.size() < count && System.nanoTime() < deadline) {
                for (Iterator i = consumer.poll(Duration.ofMillis(100)).iterator(); i.hasNext(); ) {
                    found.add(record((ConsumerRecord) i.next()));
                }
            }
        } finally {
            consumer.close();
        }
        if (found.size() != count) {
            throw new IllegalStateException(found.size() + " records came, expected " + count);
        }
        return found;
    }

    Object offset(JsonNode args) throws Exception {
        JsonNode at = args.get("at");
        OffsetSpec spec;
        if (at.isNumber()) spec = OffsetSpec.forTimestamp(at.asLong());
        else if (at.asText().equals("earliest")) spec = OffsetSpec.earliest();
        else if (at.asText().equals("latest")) spec = OffsetSpec.latest();
        else spec = OffsetSpec.maxTimestamp();
        TopicPartition place = new TopicPartition(text(args, "topic"), args.get("partition").asInt());
        ListOffsetsResult.ListOffsetsResultInfo found =
            (ListOffsetsResult.ListOffsetsResultInfo)
                get(admin.listOffsets(Collections.singletonMap(place, spec)).partitionResult(place));
        Map fields = new HashMap();
        fields.put("offset", Long.valueOf(found.offset()));
        fields.put("timestamp_ms", Long.valueOf(found.timestamp()));
        return fields;
    }

    // -- topics ------------------------------------------------------------------------------

    Object createTopic(JsonNode args) throws Exception {
        NewTopic topic = new NewTopic(text(args, "topic"), args.get("partitions").asInt(), (short) 1);
        topic.configs((Map) JSON.convertValue(args.get("config"), Map.class));
        return get(admin.createTopics(Collections.singletonList(topic)).all());
    }

    Object partitionCount(String topic) throws Exception {
        Map found = (Map) get(admin.describeTopics(Collections.singletonList(topic)).allTopicNames());
        int led = 0;
        for (Iterator i = ((TopicDescription) found.get(topic)).partitions().iterator(); i.hasNext(); ) {
            if (((TopicPartitionInfo) i.next()).leader() != null) led++;
        }
        return Integer.valueOf(led);
    }

    static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    Object config(String topic) throws Exception {
        Map found = (Map) get(admin.describeConfigs(Collections.singletonList(resource(topic))).all());
        Map values = new HashMap();
        for (Iterator i = ((Config) found.get(resource(topic))).entries().iterator(); i.hasNext(); ) {
            ConfigEntry entry = (ConfigEntry) i.next();
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    Object alterConfig(JsonNode args) throws Exception {
        List changes = new ArrayList();
        Iterator names = args.get("config").fieldNames();
        while (names.hasNext()) {
            String name = (String) names.next();
            ConfigEntry entry = new ConfigEntry(name, args.get("config").get(name).asText());
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        }
        Map wanted = Collections.singletonMap(resource(text(args, "topic")), changes);
        return get(admin.incrementalAlterConfigs(wanted).all());
    }

    Object createPartitions(JsonNode args) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(args.get("total").asInt());
        return get(admin.createPartitions(Collections.singletonMap(text(args, "topic"), total)).all());
    }

    Object deleteRecords(JsonNode args) throws Exception {
        Map before = positions(args, "before");
        Map wanted = new HashMap();
        for (Iterator i = before.keySet().iterator(); i.hasNext(); ) {
            Object place = i.next();
            wanted.put(place, RecordsToDelete.beforeOffset(((OffsetAndMetadata) before.get(place)).offset()));
        }
        Map outcomes = admin.deleteRecords(wanted).lowWatermarks();
        Map lows = new HashMap();
        for (Iterator i = outcomes.keySet().iterator(); i.hasNext(); ) {
            TopicPartition place = (TopicPartition) i.next();
            DeletedRecords deleted = (DeletedRecords) get((KafkaFuture) outcomes.get(place));
            lows.put(Integer.valueOf(place.partition()), Long.valueOf(deleted.lowWatermark()));
        }
        return lows;
    }

    // -- groups ------------------------------------------------------------------------------

    Object groups() throws Exception {
        List names = new ArrayList();
        for (Iterator i = ((Collection) get(admin.listGroups().all())).iterator(); i.hasNext(); ) {
            names.add(((GroupListing) i.next()).groupId());
        }
        return names;
    }

    Object describeGroup(String group) throws Exception {
        Map found = (Map) get(admin.describeConsumerGroups(Collections.singletonList(group)).all());
        ConsumerGroupDescription described = (ConsumerGroupDescription) found.get(group);
        List assigned = new ArrayList();
        for (Iterator i = described.members().iterator(); i.hasNext(); ) {
            assigned.addAll(pairs(((MemberDescription) i.next()).assignment().topicPartitions()));
        }
        Map fields = new HashMap();
        fields.put("state", described.groupState().toString().toLowerCase());
        fields.put("members", Integer.valueOf(described.members().size()));
        fields.put("assigned", assigned);
        return fields;
    }

    Object committed(String group, String topic) throws Exception {
        Map found = (Map) get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Map offsets = new HashMap();
        for (Iterator i = found.keySet().iterator(); i.hasNext(); ) {
            TopicPartition place = (TopicPartition) i.next();
            OffsetAndMetadata offset = (OffsetAndMetadata) found.get(place);
            if (offset != null && place.topic().equals(topic)) {
                offsets.put(Integer.valueOf(place.partition()), Long.valueOf(offset.offset()));
            }
        }
        return offsets;
    }

    Object join(JsonNode membership) {
        Map config = consumerConfig();
        config.put("group.id", text(membership, "group"));
        config.put("group.protocol", text(membership, "protocol"));
        if (text(membership, "protocol").equals("classic")) {
            config.put("session.timeout.ms", Integer.valueOf(membership.get("session_timeout_ms").asInt()));
            config.put("heartbeat.interval.ms", Integer.valueOf(300));
            String assignor = "org.apache.kafka.clients.consumer.RangeAssignor";
            if ("cooperative-sticky".equals(text(membership, "assignor"))) {
                assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
            }
            config.put("partition.assignment.strategy", assignor);
        }
        if (text(membership, "instance_id") != null) config.put("group.instance.id", text(membership, "instance_id"));
        if (text(membership, "allow_auto_create") != null) {
            config.put("allow.auto.create.topics", text(membership, "allow_auto_create"));
        }
        Collection topics = (Collection) JSON.convertValue(membership.get("topics"), List.class);
        Member member = new Member(consumer(config), topics);
        opened++;
        members.put(Integer.valueOf(opened), member);
        member.start();
        return Integer.valueOf(opened);
    }

    void close() throws Exception {
        for (Iterator i = members.values().iterator(); i.hasNext(); ) ((Member) i.next()).leave();
        for (Iterator i = producers.values().iterator(); i.hasNext(); ) ((KafkaProducer) i.next()).close();
        admin.close();
    }

    /** Polls by itself until told to leave; everything else is carried out by the same thread. */
    static class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer consumer;
        final ConcurrentLinkedQueue records = new ConcurrentLinkedQueue();
        final ConcurrentLinkedQueue tasks = new ConcurrentLinkedQueue();
        final Set revoked = new HashSet();
        volatile int rebalances = 0;
        volatile String error = null;
        volatile boolean left = false;

        Member(KafkaConsumer consumer, Collection topics) {
            this.consumer = consumer;
            setDaemon(true);
            consumer.subscribe(topics, this);
        }

        public void onPartitionsAssigned(Collection places) {
            rebalances++;
        }

        public void onPartitionsRevoked(Collection places) {
            revoked.addAll(places);
        }

        public void onPartitionsLost(Collection places) {
            revoked.addAll(places);
        }

        public void run() {
            while (!left) {
                FutureTask task = (FutureTask) tasks.poll();
                while (task != null) {
                    task.run();
                    task = (FutureTask) tasks.poll();
                }
                if (left) return;
                try {
                    for (Iterator i = consumer.poll(Duration.ofMillis(100)).iterator(); i.hasNext(); ) {
                        records.add(record((ConsumerRecord) i.next()));
                    }
                } catch (Exception failure) {
                    error = failure.toString();
                }
            }
        }

        Object carryOut(Callable work) throws Exception {
            FutureTask task = new FutureTask(work);
            tasks.add(task);
            return task.get(WAIT_S, TimeUnit.SECONDS);
        }

        Object state() throws Exception {
            final Member member = this;
            Map fields = new HashMap();
            fields.put("assigned", carryOut(new Callable() {
                public Object call() {
                    return pairs(member.consumer.assignment());
                }
            }));
            fields.put("revoked", carryOut(new Callable() {
                public Object call() {
                    return pairs(member.revoked);
                }
            }));
            fields.put("rebalances", Integer.valueOf(rebalances));
            List found = new ArrayList();
            Object record = records.poll();
            while (record != null) {
                found.add(record);
                record = records.poll();
            }
            fields.put("records", found);
            fields.put("error", error);
            return fields;
        }

        Object commit(final Map offsets) throws Exception {
            final Member member = this;
            return carryOut(new Callable() {
                public Object call() {
                    member.consumer.commitSync(offsets);
                    return null;
                }
            });
        }

        Object leave() throws Exception {
            final Member member = this;
            return carryOut(new Callable() {
                public Object call() {
                    member.consumer.close();
                    member.left = true;
                    return null;
                }
            });
        }
    }
}
