package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pairService is a service that Pair measures.
type pairService struct {
	PairProgram
	path string
	// lacks has the parts that it cannot take part in, with the reasons.
	lacks map[string]string
	// flags are those of "serve" that it knows.
	flags []string
}

// thisTree names the service of the working tree.
const thisTree = "this tree"

// removeLimit is how long the removal of a tree of git may take, after an interrupt too.
const removeLimit = time.Minute

// buildAll builds the service of each base and that of the working tree that from is in, which is the last, into a
// folder.
func buildAll(ctx context.Context, from string, bases []string, dir string) ([]pairService, error) {
	root, err := git(ctx, from, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	var services []pairService
	for n, base := range bases {
		commit, err := git(ctx, root, "rev-parse", "--verify", "--end-of-options", base+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("%q is not a commit: %w", base, err)
		}
		s := pairService{
			PairProgram: PairProgram{Name: base, Commit: commit}, path: filepath.Join(dir, fmt.Sprintf("annals-%d", n)),
		}
		if err := buildCommit(ctx, root, filepath.Join(dir, "tree"), s); err != nil {
			return nil, fmt.Errorf("%s: %w", base, err)
		}
		services = append(services, s)
	}
	commit, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	this := pairService{
		PairProgram: PairProgram{Name: thisTree, Commit: commit, Changed: changes != ""}, path: filepath.Join(dir, "annals"),
	}
	if err := build(ctx, root, this.path); err != nil {
		return nil, err
	}
	services = append(services, this)
	for i := range services {
		if err := services[i].inspect(ctx); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// buildCommit builds the service of a commit in a tree of its own, which it removes again.
func buildCommit(ctx context.Context, root, tree string, s pairService) (err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		if _, statErr := os.Stat(tree); statErr != nil {
			return // git did not create it
		}
		_, removeErr := git(ctx, root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removeErr)
	}()
	if _, err := git(ctx, root, "worktree", "add", "--detach", "--quiet", tree, s.Commit); err != nil {
		return err
	}
	return build(ctx, tree, s.path)
}

// build builds the service of a tree, each with the flags of the Makefile.
func build(ctx context.Context, tree, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", to, "./cmd/annals")
	command.Dir, command.Env = tree, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build annals: %w: %s", err, output)
	}
	return nil
}

// git runs a command of git in a folder.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	output, err := command.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(output)), nil
}

// inspect finds out what a service has.
func (s *pairService) inspect(ctx context.Context) error {
	help := func(of string) (string, error) {
		command := exec.CommandContext(ctx, s.path, of, "--help")
		command.Env = withoutSettings(os.Environ())
		output, err := command.Output()
		if _, refused := errors.AsType[*exec.ExitError](err); refused && of != "serve" {
			return "", nil // it has no such command
		}
		if err != nil {
			return "", fmt.Errorf("%s: annals %s --help: %w", s.Name, of, err)
		}
		return string(output), nil
	}
	serve, err := help("serve")
	if err != nil {
		return err
	}
	node, err := help("node")
	if err != nil {
		return err
	}
	s.lacks, s.flags = lacking(serve, node), known(serve, "--rate-limit-per-minute=0")
	return nil
}

// lacking returns the parts that a service lacks by the help of two of its commands.
func lacking(serve, node string) map[string]string {
	lacks := map[string]string{}
	switch {
	case !strings.Contains(node, "--insecure"):
		lacks[partNode] = "it has no annals node that serves without TLS"
	case !strings.Contains(serve, "--eventstore"):
		lacks[partNode] = "it uses no event store outside its process"
	}
	if !strings.Contains(serve, "--console-addr") {
		lacks[partPage] = noConsole
	}
	return lacks
}

// known returns the flags that a help lists.
func known(help string, flags ...string) (list []string) {
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if strings.Contains(help, name) {
			list = append(list, flag)
		}
	}
	return list
}

// withoutSettings returns an environment without the settings of a service: each service that is compared has the
// defaults.
func withoutSettings(env []string) []string {
	list := make([]string, 0, len(env))
	for _, variable := range env {
		if !strings.HasPrefix(variable, "ANNALS_") {
			list = append(list, variable)
		}
	}
	return list
}
