package io.github.keepsake_recall.spring;

import io.github.keepsake_recall.Keepsake;
import io.github.keepsake_recall.Replies.Memory;
import dev.langchain4j.data.document.Metadata;
import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.rag.content.Content;
import dev.langchain4j.rag.content.ContentMetadata;
import dev.langchain4j.rag.content.retriever.ContentRetriever;
import dev.langchain4j.rag.query.Query;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Retrieves one user's memories for LangChain4j, best first. */
public final class KeepsakeContentRetriever implements ContentRetriever {
    private final Keepsake keepsake;
    private final Function<Query, String> user;
    private final int limit;

    /** The owner is the memory id of the chat, as of `@MemoryId`; `user` where there is none. */
    public KeepsakeContentRetriever(Keepsake keepsake, String user, int limit) {
        this(keepsake, query -> owner(query, user), limit);
    }

    public KeepsakeContentRetriever(Keepsake keepsake, Function<Query, String> user, int limit) {
        this.keepsake = keepsake;
        this.user = user;
        this.limit = limit;
    }

    @Override
    public List<Content> retrieve(Query query) {
        var owner = user.apply(query);
        var reply = keepsake.recall(owner, query.text(), it -> it.limit(limit).format("none"));
        return reply.memories().stream().map(KeepsakeContentRetriever::content).toList();
    }

    private static String owner(Query query, String user) {
        var id = query.metadata() == null ? null : query.metadata().chatMemoryId();
        // LangChain4j gives a chat without `@MemoryId` this id.
        if (id != null && !"default".equals(id)) {
            return id.toString();
        }
        if (user == null) {
            throw new IllegalArgumentException("no user: use @MemoryId, or set keepsake.user");
        }
        return user;
    }

    private static Content content(Memory memory) {
        var labels = new HashMap<String, Object>(memory.metadata());
        labels.put("keepsake_kind", memory.kind());
        labels.put("keepsake_created_at", memory.createdAt().toString());
        var relevance = memory.relevance() == null ? memory.score() : memory.relevance();
        Map<ContentMetadata, Object> about =
                Map.of(ContentMetadata.SCORE, relevance, ContentMetadata.EMBEDDING_ID, memory.id());
        return Content.from(TextSegment.from(memory.content(), Metadata.from(labels)), about);
    }
}
