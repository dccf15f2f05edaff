package io.github.keepsake_recall;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.github.keepsake_recall.Replies.Memory;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Runs against a real service; KEEPSAKE_URL is its gateway. */
class KeepsakeTest {
    private final Keepsake keepsake = Keepsake.builder().url(System.getenv("KEEPSAKE_URL")).build();
    private final String user = "user-" + UUID.randomUUID();

    @Test
    void aTurnIsDecidedAndRecalled() {
        var kept = keepsake.turn(user, "I moved to Lisbon last month.", it -> it.session("s1"));
        assertEquals("kept", kept.outcome());
        assertEquals("dropped", keepsake.turn(user, "Ok, thanks!").outcome());
        var reply = keepsake.recall(user, "Where do I live?", it -> it.limit(3));
        assertEquals(List.of("I moved to Lisbon last month."), contents(reply.memories()));
        assertEquals("s1", reply.memories().get(0).session());
        assertTrue(reply.prompt().contains("Lisbon"), reply.prompt());
        assertEquals(1, keepsake.stats(user).total());
    }

    @Test
    void aMemoryLivesFromRememberToForget() {
        var at = Instant.parse("2026-03-14T07:26:00Z");
        var labels = Map.of("team", "blue");
        var memory =
                keepsake.remember(
                                user,
                                "Ada keeps bees in Lisbon",
                                it -> it.kind("fact").metadata(labels).at(at))
                        .memory();
        assertNotNull(memory);
        var held = keepsake.get(user, memory).memory();
        assertEquals("fact", held.kind());
        assertEquals(labels, held.metadata());
        assertEquals(at, held.createdAt());
        keepsake.update(user, memory, it -> it.content("Ada keeps bees in Porto"));
        var history = keepsake.get(user, memory).history();
        assertEquals("Ada keeps bees in Lisbon", history.get(0).content());
        assertEquals("noted", keepsake.feedback(user, List.of(memory), "confirmed").outcome());
        var explained = keepsake.explain(user, memory);
        assertEquals("asked to remember", explained.decision().reason());
        assertTrue(explained.since().stream().anyMatch(it -> it.what().equals("updated")));
        assertEquals("forgotten", keepsake.forget(user, memory).outcome());
        var failure =
                assertThrows(KeepsakeException.class, () -> keepsake.get(user, memory));
        assertEquals("not_found", failure.status());
    }

    @Test
    void pagesAreFollowedToTheEnd() {
        for (int number = 0; number < 60; number++) {
            var labels = Map.of("n", "" + number);
            keepsake.remember(user, "Note " + number, it -> it.metadata(labels));
        }
        var some = keepsake.list(user, it -> it.where(Map.of("n", Map.of("$gte", 2, "$lt", 4))));
        assertEquals(2, some.memories().size());
        assertNotNull(keepsake.list(user, it -> it.limit(3)).after());
        assertEquals(60, keepsake.listAll(user).size());
        keepsake.forgetEverything(user);
        assertEquals(0, keepsake.stats(user).total());
    }

    @Test
    void theSameEventTwiceIsADuplicate() {
        keepsake.remember(user, "Eva lives in Oslo", it -> it.id("e1"));
        var again = keepsake.remember(user, "Eva lives in Oslo", it -> it.id("e1"));
        assertEquals("duplicate", again.outcome());
        assertEquals(1, keepsake.stats(user).total());
    }

    @Test
    void aKeyDecidesTheTenant() {
        var url = System.getenv("KEEPSAKE_KEYED_URL");
        var owner = Keepsake.builder().url(url).key(System.getenv("KEEPSAKE_KEY")).build();
        owner.remember(user, "Ada keeps bees in Lisbon");
        assertEquals(1, owner.stats(user).total());
        assertEquals(0, keepsake.stats(user).total());
        var stranger = Keepsake.builder().url(url).build();
        var failure = assertThrows(KeepsakeException.class, () -> stranger.stats(user));
        assertEquals("unauthorized", failure.status());
    }

    /** A proxy in front of the gateway loses the first reply. */
    @Test
    void aLostReplyIsAskedForAgainWithTheSameId() throws IOException {
        var gateway = URI.create(System.getenv("KEEPSAKE_URL"));
        var http = HttpClient.newHttpClient();
        var calls = new AtomicInteger();
        var proxy = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        proxy.createContext(
                "/",
                exchange -> {
                    var body = exchange.getRequestBody().readAllBytes();
                    var request =
                            HttpRequest.newBuilder(gateway.resolve(exchange.getRequestURI()))
                                    .header("content-type", "application/json")
                                    .POST(HttpRequest.BodyPublishers.ofByteArray(body))
                                    .build();
                    var bytes = HttpResponse.BodyHandlers.ofByteArray();
                    var reply = http.sendAsync(request, bytes).join();
                    if (calls.getAndIncrement() > 0) {
                        exchange.sendResponseHeaders(reply.statusCode(), reply.body().length);
                        exchange.getResponseBody().write(reply.body());
                    }
                    exchange.close();
                });
        proxy.start();
        try {
            var url = "http://127.0.0.1:" + proxy.getAddress().getPort();
            var losing = Keepsake.builder().url(url).build();
            assertEquals("duplicate", losing.remember(user, "Eva lives in Oslo").outcome());
            assertEquals(1, keepsake.stats(user).total());
        } finally {
            proxy.stop(0);
        }
    }

    @Test
    void aWrongMessageIsRefusedByName() {
        var failure =
                assertThrows(
                        KeepsakeException.class,
                        () -> keepsake.recall(user, "bees", it -> it.field("limit", "many")));
        assertEquals("invalid", failure.status());
        assertEquals("limit", failure.field());
        var away = Keepsake.builder().url("http://127.0.0.1:1").retries(0).build();
        failure = assertThrows(KeepsakeException.class, () -> away.stats(user));
        assertEquals("unavailable", failure.status());
    }

    private static List<String> contents(List<Memory> memories) {
        return memories.stream().map(Memory::content).toList();
    }
}
