package io.github.keepsake_recall.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.keepsake_recall.Keepsake;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.rag.AugmentationRequest;
import dev.langchain4j.rag.DefaultRetrievalAugmentor;
import dev.langchain4j.rag.content.ContentMetadata;
import dev.langchain4j.rag.query.Metadata;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;
import org.springframework.ai.chat.prompt.Prompt;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import reactor.core.publisher.Flux;

/** Runs against a real service; only the language model is scripted. */
class StarterTest {
    private static final String URL = System.getenv("KEEPSAKE_URL");

    private final String user = "user-" + UUID.randomUUID();
    private final ApplicationContextRunner application =
            new ApplicationContextRunner()
                    .withConfiguration(AutoConfigurations.of(KeepsakeAutoConfiguration.class))
                    .withPropertyValues("keepsake.url=" + URL);

    /** Notes its prompts, and answers with these words, one part of a stream each. */
    private static final class Scripted implements ChatModel {
        final List<String> systems = new ArrayList<>();
        private final String answer;

        Scripted(String answer) {
            this.answer = answer;
        }

        @Override
        public ChatResponse call(Prompt prompt) {
            systems.add(prompt.getSystemMessage().getText());
            return response(answer);
        }

        @Override
        public Flux<ChatResponse> stream(Prompt prompt) {
            systems.add(prompt.getSystemMessage().getText());
            return Flux.fromStream(Arrays.stream(answer.split("(?<= )")).map(Scripted::response));
        }

        private static ChatResponse response(String text) {
            return new ChatResponse(List.of(new Generation(new AssistantMessage(text))));
        }
    }

    @Test
    void theAdvisorGivesTheModelWhatIsRemembered() {
        application.run(
                context -> {
                    var keepsake = context.getBean(Keepsake.class);
                    var model = new Scripted("Noted, your flight to Oslo leaves on 3 May.");
                    var chat =
                            ChatClient.builder(model)
                                    .defaultSystem("Be brief.")
                                    .defaultAdvisors(context.getBean(KeepsakeAdvisor.class))
                                    .build();
                    ask(chat, "I moved to Lisbon last month.").call().content();
                    assertEquals("Be brief.", model.systems.get(0));
                    ask(chat, "Where do I live?").call().content();
                    var system = model.systems.get(1);
                    assertTrue(system.startsWith("Be brief.\n\n"), system);
                    assertTrue(system.contains("I moved to Lisbon"), system);
                    for (var memory : keepsake.listAll(user)) {
                        assertEquals("s1", memory.session());
                    }
                    assertTrue(decided(keepsake) >= 4, "two questions and two answers");
                });
    }

    @Test
    void theAnswerOfAStreamIsOneTurn() {
        application.run(
                context -> {
                    var keepsake = context.getBean(Keepsake.class);
                    var model = new Scripted("Ok, thanks!");
                    var advisor = context.getBean(KeepsakeAdvisor.class);
                    var chat = ChatClient.builder(model).defaultAdvisors(advisor).build();
                    var parts = ask(chat, "I moved to Lisbon last month.").stream().content();
                    assertEquals("Ok, thanks!", String.join("", parts.collectList().block()));
                    assertEquals(2, decided(keepsake), "the question, and the answer as one turn");
                    ask(chat, "Where do I live?").stream().content().blockLast();
                    var system = model.systems.get(1);
                    assertTrue(system.contains("I moved to Lisbon"), system);
                });
    }

    @Test
    void aChatGoesOnWithoutKeepsake() {
        application
                .withPropertyValues("keepsake.url=http://127.0.0.1:1", "keepsake.retries=0")
                .run(
                        context -> {
                            var advisor = context.getBean(KeepsakeAdvisor.class);
                            var chat =
                                    ChatClient.builder(new Scripted("Hello."))
                                            .defaultAdvisors(advisor)
                                            .build();
                            assertEquals("Hello.", ask(chat, "Hi").call().content());
                            var nobody = chat.prompt().user("Hi").call();
                            assertThrows(IllegalArgumentException.class, nobody::content);
                        });
    }

    @Test
    void theRetrieverAugmentsAMessage() {
        application
                .withPropertyValues("keepsake.user=" + user, "keepsake.limit=1")
                .run(
                        context -> {
                            var keepsake = context.getBean(Keepsake.class);
                            keepsake.remember(user, "Ada keeps bees in Lisbon");
                            keepsake.remember(user, "The rent is due in March");
                            var retriever = context.getBean(KeepsakeContentRetriever.class);
                            var augmentor =
                                    DefaultRetrievalAugmentor.builder()
                                            .contentRetriever(retriever)
                                            .build();
                            var question = UserMessage.from("Who keeps bees?");
                            var nobody = Metadata.from(question, "default", List.of());
                            var request = new AugmentationRequest(question, nobody);
                            var result = augmentor.augment(request);
                            assertEquals(1, result.contents().size());
                            var about = result.contents().get(0).metadata();
                            assertTrue((double) about.get(ContentMetadata.SCORE) > 0, "" + about);
                            var text = ((UserMessage) result.chatMessage()).singleText();
                            assertTrue(text.contains("Ada keeps bees in Lisbon"), text);

                            var other = Metadata.from(question, "nobody-" + user, List.of());
                            result = augmentor.augment(new AugmentationRequest(question, other));
                            assertTrue(result.contents().isEmpty(), "" + result.contents());
                        });
    }

    @Test
    void anApplicationWithoutTheFrameworksGetsTheClientOnly() {
        var absent = new FilteredClassLoader("org.springframework.ai", "dev.langchain4j");
        application
                .withClassLoader(absent)
                .run(
                        context -> {
                            assertEquals(0, context.getBean(Keepsake.class).stats(user).total());
                            assertFalse(context.containsBean("keepsakeAdvisor"));
                            assertFalse(context.containsBean("keepsakeContentRetriever"));
                        });
    }

    private ChatClient.ChatClientRequestSpec ask(ChatClient chat, String question) {
        return chat.prompt()
                .user(question)
                .advisors(
                        it ->
                                it.param(KeepsakeAdvisor.USER, user)
                                        .param(KeepsakeAdvisor.SESSION, "s1"));
    }

    private long decided(Keepsake keepsake) {
        return keepsake.stats(user).decisions().values().stream().mapToLong(Long::longValue).sum();
    }
}
