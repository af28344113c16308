package dev.linger.eureka;

import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.loadbalancer.LoadBalancerClient;
import org.springframework.context.annotation.Profile;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/**
 * Sends each request on to the instance that Spring Cloud LoadBalancer chooses, over a connection of its own and without
 * a retry, and logs whom it has sent it to: {@code sent CLIENT INSTANCE SECONDS}.
 */
@RestController
@Profile("caller")
class Caller {
  private static final int TIMEOUT_MS = 15_000;
  private static final String REQUEST = "GET / HTTP/1.1\r\nHost: orders\r\nConnection: close\r\n\r\n";

  private final LoadBalancerClient balancer;

  Caller(LoadBalancerClient balancer) {
    this.balancer = balancer;
  }

  @GetMapping("/{application}")
  ResponseEntity<String> call(@PathVariable("application") String application, HttpServletRequest request) {
    double at = System.currentTimeMillis() / 1_000.0;
    String client = request.getRemoteAddr() + ":" + request.getRemotePort();
    ServiceInstance chosen = balancer.choose(application);
    String instance = chosen == null ? "-" : chosen.getHost() + ":" + chosen.getPort();
    System.out.printf("sent %s %s %.3f%n", client, instance, at);
    if (chosen == null) return ResponseEntity.status(503).build();
    try {
      String answer = ask(chosen);
      if (!answer.startsWith("HTTP/1.1 200")) return ResponseEntity.status(502).build();
      String pod = answer.substring(answer.indexOf("\r\n\r\n") + 4);
      return ResponseEntity.ok().header("X-Pod", pod).body(pod);
    } catch (IOException failed) {
      return ResponseEntity.status(502).build();
    }
  }

  private static String ask(ServiceInstance instance) throws IOException {
    try (Socket socket = new Socket()) {
      socket.connect(new InetSocketAddress(instance.getHost(), instance.getPort()), TIMEOUT_MS);
      socket.setSoTimeout(TIMEOUT_MS);
      socket.getOutputStream().write(REQUEST.getBytes(StandardCharsets.US_ASCII));
      return new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
    }
  }
}
