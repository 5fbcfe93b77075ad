// Package browser walks the console as people do: with a real browser, and with one that runs no scripts.
package browser
