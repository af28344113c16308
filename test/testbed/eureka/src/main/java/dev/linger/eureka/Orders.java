package dev.linger.eureka;

import java.time.Instant;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.context.annotation.Profile;
import org.springframework.context.event.ContextClosedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Answers with its pod's name, and logs its start and its end as the other test application does. */
@RestController
@Profile("orders")
class Orders {
  private final String pod = System.getenv("HOSTNAME");

  @GetMapping("/")
  String name() {
    return pod;
  }

  @EventListener(ApplicationReadyEvent.class)
  void started() {
    log("started");
  }

  /** Spring closes the context at SIGTERM, and cancels its registration then. */
  @EventListener(ContextClosedEvent.class)
  void closing() {
    log("sigterm");
  }

  private void log(String event) {
    System.out.printf("{\"time\":\"%s\",\"event\":\"%s\",\"pod\":\"%s\"}%n", Instant.now(), event, pod);
  }
}
