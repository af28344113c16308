// A mutating webhook for Pods as its authors' handbook writes one with controller-runtime: decode, change the
// typed object, marshal, let the library compute the patch. It makes the mutation that Linger makes, without
// its policy and checks: the yardstick of `npm run bench:admission`, and of `npm run bench:balance`, which reads its metrics.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	waitSeconds    = 30 // Linger's wait while it has measured nothing (`initial`)
	defaultGrace   = 30 // what the API server sets when the author set nothing
	planAnnotation = "linger.dev/plan"
)

type podWaiter struct {
	decoder admission.Decoder
}

// Handle gives every ordinary container without a preStop hook one that sleeps, and raises the grace by as much.
func (w *podWaiter) Handle(_ context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := w.decoder.Decode(req, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !addWait(pod) {
		return admission.Allowed("every container has a preStop hook")
	}
	mutated, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, mutated)
}

func addWait(pod *corev1.Pod) bool {
	var hooked []string
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if container.Lifecycle == nil {
			container.Lifecycle = &corev1.Lifecycle{}
		}
		if container.Lifecycle.PreStop != nil {
			continue
		}
		container.Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: waitSeconds}}
		hooked = append(hooked, container.Name)
	}
	if len(hooked) == 0 {
		return false
	}
	grace := int64(defaultGrace)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	raised := grace + waitSeconds
	pod.Spec.TerminationGracePeriodSeconds = &raised
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[planAnnotation] = fmt.Sprintf(`{"v":1,"wait":%d,"grace":%d,"baseGrace":%d,"hook":"Sleep","containers":["%s"]}`,
		waitSeconds, raised, grace, strings.Join(hooked, `","`))
	return true
}

// counted counts reviews by the protocol that the API server speaks.
func counted(next http.Handler) http.Handler {
	reviews := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bench_reviews_total", Help: "Reviews, by protocol."}, []string{"proto"})
	metrics.Registry.MustRegister(reviews, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reviews.WithLabelValues(r.Proto).Inc()
		next.ServeHTTP(w, r)
	})
}

// serveMetrics answers /metrics, and /readyz once reviews are answered.
func serveMetrics(port int, server webhook.Server) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	started := server.StartedChecker()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := started(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	fail(http.ListenAndServe(fmt.Sprintf(":%d", port), mux))
}

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 9443, "port to listen on")
	certs := flag.String("certs", ".", "folder of the certificate and its key")
	cert := flag.String("cert", "tls.crt", "certificate, a file name in that folder")
	key := flag.String("key", "tls.key", "key, a file name in that folder")
	metricsPort := flag.Int("metrics-port", 0, "port of /metrics and /readyz, plain HTTP; 0: none")
	flag.Parse()

	// The logger that every project made by kubebuilder sets: nothing is written per request at its level.
	log.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		fail(err)
	}
	server := webhook.NewServer(webhook.Options{Host: *host, Port: *port, CertDir: *certs, CertName: *cert, KeyName: *key})
	hook := &webhook.Admission{Handler: &podWaiter{decoder: admission.NewDecoder(scheme)}}
	if *metricsPort == 0 {
		server.Register("/mutate", hook)
	} else {
		server.Register("/mutate", counted(hook))
		go serveMetrics(*metricsPort, server)
	}
	if err := server.Start(signals.SetupSignalHandler()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
