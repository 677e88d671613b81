// Package kafka speaks Kafka's protocol, so that Kafka's own clients work unchanged.
//
// There is one file for each request, named by its API key, with its card on top: the versions,
// and what a reader of the protocol would not expect. What a node has to offer for it is [Broker]
// and [Groups].
package kafka
