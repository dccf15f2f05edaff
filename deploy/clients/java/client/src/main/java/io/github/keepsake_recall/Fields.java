package io.github.keepsake_recall;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The optional fields of a message. A field that is not set is left out, and has its default. */
public abstract sealed class Fields<T extends Fields<T>> {
    final Map<String, Object> all = new LinkedHashMap<>();

    /** Sets any field of the contract by its name. */
    @SuppressWarnings("unchecked")
    public T field(String name, Object value) {
        all.put(name, value);
        return (T) this;
    }

    public T session(String session) {
        return field("session", session);
    }

    /** Fields that all events have. */
    public abstract static sealed class Event<T extends Event<T>> extends Fields<T> {
        /** The same id again from the same user changes nothing. The client makes one otherwise. */
        public T id(String id) {
            return field("id", id);
        }

        public T at(Instant at) {
            return field("at", at);
        }

        public T metadata(Map<String, String> metadata) {
            return field("metadata", metadata);
        }

        public T kind(String kind) {
            return field("kind", kind);
        }
    }

    public static final class Turn extends Event<Turn> {
        /** user, assistant, system or tool; user by default. */
        public Turn role(String role) {
            return field("role", role);
        }

        public Turn speaker(String speaker) {
            return field("speaker", speaker);
        }

        /** False: the turn is context only and never stored. */
        public Turn remember(boolean remember) {
            return field("remember", remember);
        }
    }

    public static final class Remember extends Event<Remember> {
        public Remember importance(double importance) {
            return field("importance", importance);
        }

        public Remember confidence(double confidence) {
            return field("confidence", confidence);
        }

        /** user, session or tenant; user by default. */
        public Remember scope(String scope) {
            return field("scope", scope);
        }

        public Remember expiresAt(Instant end) {
            return field("expires_at", end);
        }
    }

    public static final class Update extends Event<Update> {
        public Update content(String content) {
            return field("content", content);
        }

        public Update importance(double importance) {
            return field("importance", importance);
        }

        public Update confidence(double confidence) {
            return field("confidence", confidence);
        }

        /** False: the memory is kept and in no recall until it is true again. */
        public Update enabled(boolean enabled) {
            return field("enabled", enabled);
        }
    }

    public static final class Recall extends Fields<Recall> {
        public Recall limit(int limit) {
            return field("limit", limit);
        }

        public Recall tokenBudget(int tokens) {
            return field("token_budget", tokens);
        }

        public Recall kinds(List<String> kinds) {
            return field("kinds", kinds);
        }

        /** Conditions: a text that must be equal, or operators such as {@code Map.of("$gte", 3)}. */
        public Recall where(Map<String, ?> conditions) {
            return field("where", conditions);
        }

        public Recall minRelevance(double relevance) {
            return field("min_relevance", relevance);
        }

        public Recall asOf(Instant time) {
            return field("as_of", time);
        }

        /** markdown, xml, compact, json, template or none. */
        public Recall format(String format) {
            return field("format", format);
        }

        /** prompt: the application adds the memories to every prompt; tool: somebody asked. */
        public Recall purpose(String purpose) {
            return field("purpose", purpose);
        }

        public Recall explain(boolean explain) {
            return field("explain", explain);
        }
    }

    public static final class Listing extends Fields<Listing> {
        public Listing kinds(List<String> kinds) {
            return field("kinds", kinds);
        }

        /** Conditions as those of a recall. */
        public Listing where(Map<String, ?> conditions) {
            return field("where", conditions);
        }

        public Listing offset(int memories) {
            return field("offset", memories);
        }

        public Listing limit(int limit) {
            return field("limit", limit);
        }

        /** The cursor of the page before. */
        public Listing after(String after) {
            return field("after", after);
        }
    }
}
