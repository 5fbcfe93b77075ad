// Package e2e tests the built binary from outside, as its users meet it: started, called, killed, started again.
package e2e
