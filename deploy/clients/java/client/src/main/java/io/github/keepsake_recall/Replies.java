package io.github.keepsake_recall;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** The replies of the contract. A field that is not in a reply is null, or empty for lists. */
public final class Replies {
    private Replies() {}

    public record Memory(
            String id,
            String kind,
            String content,
            Double score,
            Double relevance,
            Double importance,
            Double confidence,
            Instant createdAt,
            Instant validFrom,
            Instant validTo,
            Instant expiresAt,
            String session,
            String speaker,
            String role,
            Map<String, String> metadata,
            List<String> supersedes,
            String supersededBy,
            String revisedBy,
            String note,
            Boolean enabled,
            String scope,
            String state) {
        public Memory {
            metadata = metadata == null ? Map.of() : metadata;
            supersedes = supersedes == null ? List.of() : supersedes;
        }
    }

    public record Decision(
            String outcome,
            String reason,
            String memory,
            List<String> related,
            String candidate,
            String kind,
            Integer left) {
        public Decision {
            related = related == null ? List.of() : related;
        }
    }

    public record Applied(List<Decision> decisions, int partition, long offset) {
        /** The memory of the first decision, or null. */
        public String memory() {
            return decisions.get(0).memory();
        }

        public String outcome() {
            return decisions.get(0).outcome();
        }
    }

    /** `wishes` are those for every answer beside the memories; `match` is good, weak or none. */
    public record Recalled(
            List<Memory> memories,
            List<Memory> wishes,
            String match,
            String prompt,
            int tokens,
            boolean stale,
            boolean partial) {
        public Recalled {
            wishes = wishes == null ? List.of() : wishes;
        }
    }

    public record Listed(List<Memory> memories, String after) {}

    public record Revision(String content, Instant until) {}

    public record OneMemory(Memory memory, List<Revision> history) {
        public OneMemory {
            history = history == null ? List.of() : history;
        }
    }

    public record Happened(String what, Instant at, Integer count, String memory) {}

    public record Explained(Decision decision, Memory memory, List<Happened> since) {}

    /** `memories` has the counts by kind, scope and state as JSON. */
    public record Stats(
            JsonNode memories, Map<String, Long> decisions, Instant oldest, long bytes) {
        public long total() {
            return memories.path("total").asLong();
        }
    }
}
