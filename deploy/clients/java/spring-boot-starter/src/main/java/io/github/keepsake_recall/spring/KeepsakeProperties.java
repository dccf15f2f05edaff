package io.github.keepsake_recall.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Options under `keepsake`. `user` is the owner of the memories where a call names none; an
 * application with one user needs no other.
 */
@ConfigurationProperties("keepsake")
public record KeepsakeProperties(
        @DefaultValue("http://localhost:8765") String url,
        String key,
        @DefaultValue("30s") Duration timeout,
        @DefaultValue("2") int retries,
        String user,
        @DefaultValue("5") int limit) {}
