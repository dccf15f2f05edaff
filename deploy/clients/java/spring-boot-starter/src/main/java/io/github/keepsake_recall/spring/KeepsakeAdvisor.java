package io.github.keepsake_recall.spring;

import io.github.keepsake_recall.Keepsake;
import io.github.keepsake_recall.KeepsakeException;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.ai.chat.client.ChatClientMessageAggregator;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.AdvisorChain;
import org.springframework.ai.chat.client.advisor.api.BaseAdvisor;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisorChain;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Gives the model what is remembered about the question, and gives Keepsake both turns.
 *
 * <p>The parameters {@link #USER} and {@link #SESSION} of a call name the owner and the
 * conversation. A memory that cannot be reached is logged, and the chat goes on without it.
 */
public final class KeepsakeAdvisor implements BaseAdvisor {
    /** Name of the parameter with the user whose memories are used. */
    public static final String USER = "keepsake_user";

    /** Name of the parameter with the conversation; none by default. */
    public static final String SESSION = "keepsake_session";

    private static final Logger log = LoggerFactory.getLogger(KeepsakeAdvisor.class);

    private final Keepsake keepsake;
    private final String user;
    private final int limit;

    /** `user` is the owner where a call names none; null if every call names one. */
    public KeepsakeAdvisor(Keepsake keepsake, String user, int limit) {
        this.keepsake = keepsake;
        this.user = user;
        this.limit = limit;
    }

    /** Inside the advisors that other orders put outside, such as a chat memory's. */
    @Override
    public int getOrder() {
        return 0;
    }

    @Override
    public ChatClientRequest before(ChatClientRequest request, AdvisorChain chain) {
        var context = request.context();
        var owner = owner(context);
        var question = request.prompt().getUserMessage().getText();
        if (question == null || question.isBlank()) {
            return request;
        }
        String block;
        try {
            var session = session(context);
            // Before the turn is stored, or the answer would be the question.
            block =
                    keepsake.recall(
                                    owner,
                                    question,
                                    it -> it.session(session).limit(limit).purpose("prompt"))
                            .prompt();
            keepsake.turn(owner, question, it -> it.session(session));
        } catch (KeepsakeException failure) {
            log.warn("the chat goes on without memories: {}", failure.getMessage());
            return request;
        }
        if (block.isBlank()) {
            return request;
        }
        var prompt =
                request.prompt()
                        .augmentSystemMessage(
                                system -> {
                                    var text = system.getText();
                                    var whole = text.isBlank() ? block : text + "\n\n" + block;
                                    return system.mutate().text(whole).build();
                                });
        return request.mutate().prompt(prompt).build();
    }

    @Override
    public ChatClientResponse after(ChatClientResponse response, AdvisorChain chain) {
        var answer = response.chatResponse() == null ? null : response.chatResponse().getResult();
        var text = answer == null ? null : answer.getOutput().getText();
        if (text == null || text.isBlank()) {
            return response;
        }
        var context = response.context();
        try {
            var session = session(context);
            keepsake.turn(owner(context), text, it -> it.role("assistant").session(session));
        } catch (KeepsakeException failure) {
            log.warn("an answer was not given to Keepsake: {}", failure.getMessage());
        }
        return response;
    }

    /** The answer of a stream is a turn when all its parts are there. */
    @Override
    public Flux<ChatClientResponse> adviseStream(
            ChatClientRequest request, StreamAdvisorChain chain) {
        var responses =
                Mono.fromCallable(() -> before(request, chain))
                        .subscribeOn(getScheduler())
                        .flatMapMany(chain::nextStream);
        return new ChatClientMessageAggregator()
                .aggregateChatClientResponse(responses, whole -> after(whole, chain));
    }

    private String owner(Map<String, Object> context) {
        var named = context.getOrDefault(USER, user);
        if (named == null) {
            throw new IllegalArgumentException(
                    "no user: give the advisor parameter " + USER + ", or set keepsake.user");
        }
        return named.toString();
    }

    private static String session(Map<String, Object> context) {
        return context.getOrDefault(SESSION, "").toString();
    }
}
