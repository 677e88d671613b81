package node

import (
	"edged/transport/kafka"

	"github.com/prometheus/client_golang/prometheus"
)

// kafkaMetrics registers what the Kafka listeners count.
func (n *Node) kafkaMetrics(r *prometheus.Registry) {
	gauge := func(name, help string, pick func(kafka.Metrics) int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(pick(n.kafka.server.Metrics())) }))
	}
	counter := func(name, help string, pick func(kafka.Metrics) int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(pick(n.kafka.server.Metrics())) }))
	}
	gauge("edged_kafka_connections", "Kafka clients that are connected.", func(m kafka.Metrics) int64 { return m.Connections })
	gauge("edged_kafka_request_bytes", "Memory of Kafka requests being worked on.", func(m kafka.Metrics) int64 { return m.RequestBytes })
	gauge("edged_kafka_response_bytes", "Memory of Kafka answers on their way out.", func(m kafka.Metrics) int64 { return m.ResponseBytes })
	counter("edged_kafka_connections_total", "Kafka connections taken.", func(m kafka.Metrics) int64 { return m.Accepted })
	counter("edged_kafka_refused_total", "Kafka connections over the limit.", func(m kafka.Metrics) int64 { return m.Refused })
	counter("edged_kafka_stalled_total", "Kafka connections dropped because they stood still while others waited for memory.", func(m kafka.Metrics) int64 { return m.Stalled })
	counter("edged_kafka_in_bytes_total", "Bytes of Kafka requests.", func(m kafka.Metrics) int64 { return m.BytesIn })
	counter("edged_kafka_out_bytes_total", "Bytes of Kafka answers.", func(m kafka.Metrics) int64 { return m.BytesOut })
	r.MustRegister(kafkaCounts{n})
}

// kafkaCounts is what is counted by name. The names are those of requests, of Kafka's errors and of our
// own reasons, so their number is bounded.
type kafkaCounts struct{ n *Node }

var (
	kafkaRequestsDesc = prometheus.NewDesc("edged_kafka_requests_total", "Kafka requests.", []string{"request"}, nil)
	kafkaErrorsDesc   = prometheus.NewDesc("edged_kafka_errors_total", "Errors answered to Kafka clients; one request may have many.", []string{"error"}, nil)
	kafkaBadDesc      = prometheus.NewDesc("edged_kafka_bad_requests_total", "Kafka connections that were ended, by reason.", []string{"reason"}, nil)
)

func (k kafkaCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- kafkaRequestsDesc
	ch <- kafkaErrorsDesc
	ch <- kafkaBadDesc
}

func (k kafkaCounts) Collect(ch chan<- prometheus.Metric) {
	m := k.n.kafka.server.Metrics()
	for desc, counts := range map[*prometheus.Desc]map[string]int64{kafkaRequestsDesc: m.Requests, kafkaErrorsDesc: m.Errors, kafkaBadDesc: m.BadRequests} {
		for name, v := range counts {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), name)
		}
	}
}
