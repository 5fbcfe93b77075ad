// Package deploytest checks the files of the deployment with the libraries of the programs that read
// them: Compose, Helm, the Kubernetes API and Prometheus. It is a module of its own, so that none of
// them is a dependency of the service.
package deploytest
