package io.github.keepsake_recall.spring;

import io.github.keepsake_recall.Keepsake;
import dev.langchain4j.rag.content.retriever.ContentRetriever;
import org.springframework.ai.chat.client.advisor.api.Advisor;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** A client, and for Spring AI an advisor, for LangChain4j a content retriever. */
@AutoConfiguration
@EnableConfigurationProperties(KeepsakeProperties.class)
public class KeepsakeAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    Keepsake keepsake(KeepsakeProperties properties) {
        return Keepsake.builder()
                .url(properties.url())
                .key(properties.key())
                .timeout(properties.timeout())
                .retries(properties.retries())
                .build();
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(Advisor.class)
    static class SpringAi {
        @Bean
        @ConditionalOnMissingBean
        KeepsakeAdvisor keepsakeAdvisor(Keepsake keepsake, KeepsakeProperties properties) {
            return new KeepsakeAdvisor(keepsake, properties.user(), properties.limit());
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(ContentRetriever.class)
    static class LangChain4j {
        @Bean
        @ConditionalOnMissingBean
        KeepsakeContentRetriever keepsakeContentRetriever(
                Keepsake keepsake, KeepsakeProperties properties) {
            return new KeepsakeContentRetriever(keepsake, properties.user(), properties.limit());
        }
    }
}
