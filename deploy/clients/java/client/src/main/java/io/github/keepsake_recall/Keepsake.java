package io.github.keepsake_recall;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.UnaryOperator;

/**
 * Client of Keepsake's gateway. One client serves many users and threads.
 *
 * <p>An event returns when its effect can be read. After a failure that may pass, the same message
 * is sent again: each event has an id, so a second copy changes nothing.
 */
public final class Keepsake {
    private static final Set<String> RETRIED =
            Set.of("overloaded", "unavailable", "expired", "no_reply");
    private static final long RETRY_PAUSE_MS = 200;
    private static final ObjectMapper JSON =
            JsonMapper.builder()
                    .addModule(new JavaTimeModule())
                    .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
                    .disable(SerializationFeature.WRITE_DATES_AS_TIMESTAMPS)
                    .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                    .build();

    private final String url;
    private final String key;
    private final Duration timeout;
    private final int retries;
    private final HttpClient http;

    private Keepsake(Builder builder) {
        url = builder.url.replaceAll("/+$", "");
        key = builder.key;
        timeout = builder.timeout;
        retries = builder.retries;
        // The gateway speaks HTTP/1.1 only: an upgrade would be asked for in vain.
        http =
                HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .connectTimeout(timeout)
                        .build();
    }

    public static Builder builder() {
        return new Builder();
    }

    public static final class Builder {
        private String url = "http://localhost:8765";
        private String key;
        private Duration timeout = Duration.ofSeconds(30);
        private int retries = 2;

        private Builder() {}

        public Builder url(String url) {
            this.url = url;
            return this;
        }

        /** A key of `keepsake keys new`. It decides the tenant. */
        public Builder key(String key) {
            this.key = key;
            return this;
        }

        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        public Builder retries(int retries) {
            this.retries = retries;
            return this;
        }

        public Keepsake build() {
            return new Keepsake(this);
        }
    }

    /** Adds one turn of a conversation; the surprising parts become memories. */
    public Replies.Applied turn(String user, String content) {
        return turn(user, content, it -> it);
    }

    public Replies.Applied turn(String user, String content, UnaryOperator<Fields.Turn> fields) {
        var given = fields.apply(new Fields.Turn().field("content", content));
        return event("turn", user, given.all);
    }

    /** Stores a text as it is. The decision has the id of the memory. */
    public Replies.Applied remember(String user, String content) {
        return remember(user, content, it -> it);
    }

    public Replies.Applied remember(
            String user, String content, UnaryOperator<Fields.Remember> fields) {
        var given = fields.apply(new Fields.Remember().field("content", content));
        return event("remember", user, given.all);
    }

    /** Changes one memory. Earlier contents stay in the history; metadata is replaced whole. */
    public Replies.Applied update(String user, String memory, UnaryOperator<Fields.Update> fields) {
        var given = fields.apply(new Fields.Update().field("memory", memory));
        return event("update", user, given.all);
    }

    /** Erases one memory for good. */
    public Replies.Applied forget(String user, String memory) {
        return event("forget", user, Map.of("memory", memory));
    }

    /** Erases all memories that were made in a session. */
    public Replies.Applied forgetSession(String user, String session) {
        return event("forget", user, Map.of("session", session));
    }

    /** Erases the memories that a query finds. */
    public Replies.Applied forgetQuery(String user, String query) {
        return event("forget", user, Map.of("query", query));
    }

    /** Erases all memories of a user. */
    public Replies.Applied forgetEverything(String user) {
        return event("forget", user, Map.of("everything", true));
    }

    /** Says what became of recalled memories: used, confirmed, wrong or irrelevant. */
    public Replies.Applied feedback(String user, List<String> memories, String signal) {
        return event("feedback", user, Map.of("memories", memories, "signal", signal));
    }

    /** Finds the memories that answer a query, best first, and a block for the prompt. */
    public Replies.Recalled recall(String user, String query) {
        return recall(user, query, it -> it);
    }

    public Replies.Recalled recall(String user, String query, UnaryOperator<Fields.Recall> fields) {
        var given = fields.apply(new Fields.Recall().field("query", query));
        return call("recall", user, given.all, Replies.Recalled.class);
    }

    /** One page of memories; `after` of the reply asks for the next. */
    public Replies.Listed list(String user, UnaryOperator<Fields.Listing> fields) {
        return call("list", user, fields.apply(new Fields.Listing()).all, Replies.Listed.class);
    }

    /** All memories, page by page. */
    public List<Replies.Memory> listAll(String user) {
        var memories = new ArrayList<Replies.Memory>();
        String after = null;
        do {
            var cursor = after;
            var page = list(user, it -> cursor == null ? it : it.after(cursor));
            memories.addAll(page.memories());
            after = page.after();
        } while (after != null);
        return memories;
    }

    public Replies.OneMemory get(String user, String memory) {
        var fields = Map.<String, Object>of("memory", memory, "history", true);
        return call("get", user, fields, Replies.OneMemory.class);
    }

    /** Why a memory was kept, and what happened to it since. */
    public Replies.Explained explain(String user, String memory) {
        return call("explain", user, Map.of("memory", memory), Replies.Explained.class);
    }

    /** Counts of memories and decisions. */
    public Replies.Stats stats(String user) {
        return call("stats", user, Map.of(), Replies.Stats.class);
    }

    private Replies.Applied event(String type, String user, Map<String, Object> fields) {
        var message = new LinkedHashMap<>(fields);
        message.putIfAbsent("id", UUID.randomUUID().toString());
        return call(type, user, message, Replies.Applied.class);
    }

    /** Sends any message of the contract by its type. */
    public <T> T call(String type, String user, Map<String, Object> fields, Class<T> reply) {
        var message = new LinkedHashMap<>(fields);
        message.put("user", user);
        for (int attempt = 0; ; attempt++) {
            try {
                return JSON.treeToValue(send(type, JSON.writeValueAsBytes(message)), reply);
            } catch (KeepsakeException failure) {
                if (!RETRIED.contains(failure.status()) || attempt >= retries) {
                    throw failure;
                }
                pause(RETRY_PAUSE_MS << attempt);
            } catch (IOException failure) {
                throw new KeepsakeException("bad_reply", failure.getMessage(), null, failure);
            }
        }
    }

    private JsonNode send(String type, byte[] body) {
        var request =
                HttpRequest.newBuilder(URI.create(url + "/v1/keepsake/" + type))
                        .timeout(timeout)
                        .header("content-type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofByteArray(body));
        if (key != null && !key.isEmpty()) {
            request.header("authorization", "Bearer " + key);
        }
        HttpResponse<byte[]> response;
        try {
            response = http.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        } catch (HttpTimeoutException failure) {
            throw new KeepsakeException("no_reply", "no reply within " + timeout, null, failure);
        } catch (IOException failure) {
            var message = "the gateway does not answer: " + failure;
            throw new KeepsakeException("unavailable", message, null, failure);
        } catch (InterruptedException failure) {
            Thread.currentThread().interrupt();
            throw new KeepsakeException("interrupted", "the call was interrupted", null, failure);
        }
        JsonNode reply;
        try {
            reply = JSON.readTree(response.body());
        } catch (IOException failure) {
            var message = "status " + response.statusCode() + ", and no JSON";
            throw new KeepsakeException("bad_reply", message, null, failure);
        }
        var error = reply.path("error");
        if (response.statusCode() != 200 || !error.isMissingNode()) {
            throw new KeepsakeException(
                    error.path("code").asText("bad_reply"),
                    error.path("message").asText("status " + response.statusCode()),
                    error.path("field").asText(null),
                    null);
        }
        return reply;
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException failure) {
            Thread.currentThread().interrupt();
            throw new KeepsakeException("interrupted", "the call was interrupted", null, failure);
        }
    }
}
