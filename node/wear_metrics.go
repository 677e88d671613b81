package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// wearMetrics registers what is known of the card's wear. What is not known is not there.
func (n *Node) wearMetrics(r *prometheus.Registry) { r.MustRegister(wearCollector{n}) }

type wearCollector struct{ n *Node }

var (
	writtenDesc = prometheus.NewDesc("edged_disk_written_bytes_total", "Bytes written to the disk of the data directory while this node's lives ran, by whomever.", nil, nil)
	perDayDesc  = prometheus.NewDesc("edged_disk_written_bytes_per_day", "The same by the pace of the last day.", nil, nil)
	ampDesc     = prometheus.NewDesc("edged_storage_write_amplification_ratio", "Bytes that the store wrote for each byte of records since the start.", nil, nil)
	daysDesc    = prometheus.NewDesc("edged_disk_wear_days", "Days until the card has taken card-tbw, at the pace of the last day.", nil, nil)
)

func (c wearCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{writtenDesc, perDayDesc, ampDesc, daysDesc} {
		ch <- d
	}
}

func (c wearCollector) Collect(ch chan<- prometheus.Metric) {
	f := c.n.wear.figures(time.Since(c.n.started))
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, known bool) {
		if known {
			ch <- prometheus.MustNewConstMetric(d, kind, v)
		}
	}
	send(writtenDesc, prometheus.CounterValue, float64(f.Written), true)
	send(perDayDesc, prometheus.GaugeValue, float64(f.PerDay), f.PerDay >= 0)
	send(ampDesc, prometheus.GaugeValue, f.Amplification, f.Amplification > 0)
	send(daysDesc, prometheus.GaugeValue, float64(f.Days), f.Days >= 0)
}
