package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// register adds the metric that shows whether the service is ready.
func (h *health) register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_ready", Help: "1 while /readyz answers 200.",
	}, func() float64 {
		if len(h.notReady(context.Background())) == 0 {
			return 1
		}
		return 0
	}))
}
