// Package interop checks that programs that others wrote read the files of the audit log, and that ours read theirs. It
// is a module of its own, so that none of them is a dependency of the service.
package interop
