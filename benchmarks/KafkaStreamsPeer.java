import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TableJoined;

/**
 * Kafka Streams in `joins.py`: orders with the customers of their foreign key, both tables from JSON.
 *
 * Answers requests as the other peers do. Time runs from the first record that is read to the last
 * result; start, rebalancing and the silence after which it is taken to be done do not count. With
 * `out` the results go to a topic of that name, otherwise nowhere.
 */
public class KafkaStreamsPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long DONE_AFTER_NS = 30_000_000_000L;

    record Order(long id, long customer, long amount) {}

    record Customer(String region) {}

    public static void main(String[] arguments) throws Exception {
        System.out.println("{\"ready\": true}");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            String out = request.path("out").asText(null);
            double seconds = run(request.get("bootstrap").asText(), "null".equals(out) ? null : out);
            System.out.printf("{\"seconds\": %.3f}%n", seconds);
        }
    }

    private static double run(String bootstrap, String out) throws Exception {
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        Path state = Files.createTempDirectory("kafka-streams-peer");
        KafkaStreams streams = new KafkaStreams(topology(first, last, out).build(), settings(bootstrap, state));
        streams.start();
        while (first.get() == 0 || System.nanoTime() - last.get() < DONE_AFTER_NS) {
            Thread.sleep(100);
            if (streams.state() == KafkaStreams.State.ERROR) {
                throw new IllegalStateException("Kafka Streams ended with an error");
            }
        }
        streams.close(Duration.ofSeconds(30));
        try (Stream<Path> files = Files.walk(state)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
        return (last.get() - first.get()) / 1e9;
    }

    private static StreamsBuilder topology(AtomicLong first, AtomicLong last, String out) {
        Serde<Order> orders = serde(first, last, KafkaStreamsPeer::orderOf, KafkaStreamsPeer::bytesOf);
        Serde<Customer> customers = serde(first, last, KafkaStreamsPeer::customerOf, KafkaStreamsPeer::bytesOf);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, Order> left =
            builder.table("orders", Consumed.with(Serdes.String(), orders), Materialized.with(Serdes.String(), orders));
        KTable<String, Customer> right = builder.table(
            "customers", Consumed.with(Serdes.String(), customers), Materialized.with(Serdes.String(), customers));
        KStream<String, String> joined = left.leftJoin(
            right,
            order -> "{\"customer\":" + order.customer() + "}",
            KafkaStreamsPeer::result,
            TableJoined.with(
                (topic, key, nothing, partitions) -> partition(key, partitions),
                (topic, key, nothing, partitions) -> partition(key, partitions)),
            Materialized.with(Serdes.String(), Serdes.String())).toStream();
        joined = joined.peek((key, value) -> last.set(System.nanoTime()));
        if (out != null) {
            String topic = out.substring(out.lastIndexOf('/') + 1);
            joined.to(topic, Produced.with(Serdes.String(), Serdes.String()));
        }
        return builder;
    }

    /** Where the benchmark puts a row: by the number in its key, and not by the hash of its bytes. */
    private static Optional<Set<Integer>> partition(String key, int partitions) {
        long number = Long.parseLong(key.substring(key.indexOf(':') + 1, key.length() - 1));
        return Optional.of(Set.of((int) Math.floorMod(number, (long) partitions)));
    }

    private static String result(Order order, Customer customer) {
        String region = customer == null ? "null" : "\"" + customer.region() + "\"";
        return "{\"order_id\":" + order.id() + ",\"amount\":" + order.amount() + ",\"region\":" + region + "}";
    }

    private static Properties settings(String bootstrap, Path state) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer-" + UUID.randomUUID());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000); // caches are emptied then, not after 30 s
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    /** JSON where a topic of the benchmark is read, plain fields in the stores and topics of Kafka Streams. */
    private static <T> Serde<T> serde(AtomicLong first, AtomicLong last, Reader<T> reader, Serializer<T> plain) {
        Deserializer<T> deserializer = (topic, data) -> {
            if (data == null) {
                return null;
            }
            long now = System.nanoTime();
            first.compareAndSet(0, now);
            last.set(now);
            try {
                return reader.read(data);
            } catch (IOException error) {
                throw new IllegalArgumentException(error);
            }
        };
        return Serdes.serdeFrom(plain, deserializer);
    }

    interface Reader<T> {
        T read(byte[] data) throws IOException;
    }

    private static Order orderOf(byte[] data) throws IOException {
        if (data[0] != '{') {
            ByteBuffer fields = ByteBuffer.wrap(data, 1, data.length - 1);
            return new Order(fields.getLong(), fields.getLong(), fields.getLong());
        }
        JsonNode row = JSON.readTree(data);
        return new Order(row.get("order_id").asLong(), row.get("customer_id").asLong(), row.get("amount").asLong());
    }

    private static byte[] bytesOf(String topic, Order order) {
        if (order == null) {
            return null;
        }
        return ByteBuffer.allocate(25).put((byte) 'o').putLong(order.id()).putLong(order.customer())
            .putLong(order.amount()).array();
    }

    private static Customer customerOf(byte[] data) throws IOException {
        if (data[0] != '{') {
            return new Customer(new String(data, 1, data.length - 1, StandardCharsets.UTF_8));
        }
        return new Customer(JSON.readTree(data).get("region").asText());
    }

    private static byte[] bytesOf(String topic, Customer customer) {
        return customer == null ? null : ("c" + customer.region()).getBytes(StandardCharsets.UTF_8);
    }
}
