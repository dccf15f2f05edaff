import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.SendTo;

/** Checks of Spring Kafka against the embedded log: {@code Spring.java ADDRESS replies | recall}. */
public class Spring {
    static final Duration WITHIN = Duration.ofSeconds(20);
    static String address;

    public static void main(String[] arguments) {
        address = arguments[0];
        int code = 0;
        try {
            if (arguments[1].equals("replies")) {
                replies();
            } else {
                recall();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            code = 1;
        }
        System.exit(code); // the containers of replies have threads that wait
    }

    /** A listener reads, answers and commits in one transaction; its first attempt is rolled back. */
    static void replies() throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", address))) {
            var topics = List.of(new NewTopic("questions", 2, (short) 1), new NewTopic("answers", 1, (short) 1));
            admin.createTopics(topics).all().get();
        }
        try (var context = new AnnotationConfigApplicationContext(Echo.class)) {
            var template = template("answers");
            for (int number = 0; number < 50; number++) {
                var question = new ProducerRecord<>("questions", "key " + number, "question " + number);
                expect("QUESTION " + number, template.sendAndReceive(question, WITHIN).get().value());
            }
            int attempts = context.getBean(Echo.class).attempts.get();
            expect("51", String.valueOf(attempts));
        }
    }

    /** The calls of the page "Over Kafka in Java" against the service itself. */
    static void recall() throws Exception {
        var template = template("keepsake.replies");
        template.setSharedReplyTopic(true);
        var turn = "{\"type\":\"turn\",\"user\":\"ada\",\"content\":\"I moved to Lisbon.\"}";
        template.send("keepsake.events", "default/ada", turn).get();
        var deadline = System.nanoTime() + WITHIN.toNanos();
        String reply;
        do {
            var ask = new ProducerRecord<>("keepsake.recalls", "default/ada",
                    "{\"type\":\"recall\",\"user\":\"ada\",\"query\":\"Who moved to Lisbon?\"}");
            reply = template.sendAndReceive(ask, WITHIN).get().value();
        } while (!reply.contains("I moved to Lisbon.") && System.nanoTime() < deadline);
        expect("true", String.valueOf(reply.contains("I moved to Lisbon.")));
    }

    static ReplyingKafkaTemplate<String, String, String> template(String topic) throws InterruptedException {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumers("latest"));
        var replies = factory.createContainer(topic);
        replies.getContainerProperties().setGroupId("replies-" + UUID.randomUUID());
        var template = new ReplyingKafkaTemplate<String, String, String>(producers(null), replies);
        template.start();
        if (!template.waitForAssignment(WITHIN)) {
            throw new AssertionError("no partitions of " + topic);
        }
        return template;
    }

    static DefaultKafkaConsumerFactory<String, String> consumers(String reset) {
        return new DefaultKafkaConsumerFactory<>(
                Map.of(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, address, ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, reset,
                        ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"),
                new StringDeserializer(), new StringDeserializer());
    }

    static DefaultKafkaProducerFactory<String, String> producers(String transactions) {
        var settings = new HashMap<String, Object>(Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, address));
        var strings = new StringSerializer();
        var factory = new DefaultKafkaProducerFactory<String, String>(settings, strings, strings);
        if (transactions != null) {
            factory.setTransactionIdPrefix(transactions);
        }
        return factory;
    }

    static void expect(String expected, String got) {
        if (!expected.equals(got)) {
            throw new AssertionError("expected " + expected + ", got " + got);
        }
    }

    @EnableKafka
    @Configuration
    public static class Echo {
        final AtomicInteger attempts = new AtomicInteger();
        final DefaultKafkaProducerFactory<String, String> producers = producers("echo-");

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
            var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
            factory.setConsumerFactory(consumers("earliest"));
            factory.setReplyTemplate(new KafkaTemplate<>(producers));
            factory.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
            return factory;
        }

        @KafkaListener(id = "echo", topics = "questions")
        @SendTo
        public String answer(String question) {
            if (attempts.incrementAndGet() == 1) {
                throw new IllegalStateException("the first attempt is rolled back");
            }
            return question.toUpperCase();
        }
    }
}
