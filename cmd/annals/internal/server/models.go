package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/projections/embeddings"
)

// Builtin is when the built-in embedding model embeds, if there is no endpoint.
type Builtin string

// The values of Config.Builtin. BuiltinWanted differs from BuiltinAuto in a process that lacks the model: vectors are
// projected nevertheless, as the processes that have it need it, and the start warns.
const (
	BuiltinNone   Builtin = ""
	BuiltinAuto   Builtin = "auto"
	BuiltinWanted Builtin = "builtin"
)

// ParseBuiltin reads ANNALS_EMBEDDINGS: auto, which is the default, builtin or none. hasEndpoint is set if an endpoint
// embeds, which none contradicts.
func ParseBuiltin(text string, hasEndpoint bool) (Builtin, error) {
	switch text {
	case "":
		return BuiltinAuto, nil
	case string(BuiltinAuto), string(BuiltinWanted):
		return Builtin(text), nil
	case "none":
		if hasEndpoint {
			return "", errors.New("is none, but ANNALS_EMBEDDINGS_URL is set: remove one of them")
		}
		return BuiltinNone, nil
	}
	return "", fmt.Errorf("is %q: want auto, none or builtin", text)
}

// ParseLeast reads ANNALS_EMBEDDINGS_LEAST, the least cosine of hits by an endpoint's model: from 0 to 1, or empty
// for 0, which is no limit.
func ParseLeast(text string, hasEndpoint bool) (float64, error) {
	if text == "" {
		return 0, nil
	}
	least, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(least >= 0 && least <= 1): // also what is not a number
		return 0, fmt.Errorf("is %q: want a cosine from 0 to 1, such as 0.3, or nothing for no limit", text)
	case least > 0 && !hasEndpoint:
		return 0, errors.New("is set, but ANNALS_EMBEDDINGS_URL is not: the built-in model has its own")
	}
	return least, nil
}

// models are the embedding models that this process can call.
type models struct {
	endpoint *model.Embedder // nil without one
	builtin  *model.Builtin  // nil if it is not to be used or not installed
	// damaged is why the built-in model cannot be used although it is installed, nil if it can.
	damaged error
	// endpointLeast is the least cosine of hits by the endpoint, 0 for no limit.
	endpointLeast float64
	// stored is the model of the stored vectors, "" if there are none. projected is set if vectors are projected.
	stored    string
	projected bool
}

// newModels opens the models, and reads which one made the stored vectors.
func newModels(ctx context.Context, cfg Config, st *storage) (m models, err error) {
	if cfg.Embeddings.URL != "" {
		if m.endpoint, err = model.NewEmbedder(cfg.Embeddings); err != nil {
			return m, err
		}
		m.endpointLeast = cfg.EmbeddingsLeast
	}
	if cfg.Builtin != BuiltinNone {
		if err = m.openBuiltin(ctx, cfg); err != nil {
			return m, err
		}
	}
	if m.configured() != nil || cfg.Builtin == BuiltinNone {
		m.projected = m.configured() != nil
		return m, nil
	}
	// Projected vectors stay until their model is there again, and those of erased texts leave meanwhile.
	live, stored, err := embeddings.LiveModel{DB: st.db}.Stored(ctx)
	if err != nil {
		return m, err
	}
	m.projected = live != "" || cfg.Builtin == BuiltinWanted
	if stored {
		m.stored = live
	}
	return m, nil
}

// openBuiltin opens the built-in model if it is installed. With BuiltinAuto one that cannot be used, such as that of
// another version of the program, counts as not installed. One that the configuration names must be usable.
func (m *models) openBuiltin(ctx context.Context, cfg Config) error {
	path, open := cfg.Data.Model(), cfg.openEncoder
	if open == nil {
		open = func(dir string) (model.Encoder, error) { return minilm.Open(dir) }
		if cfg.BuiltinFile != "" {
			open = func(file string) (model.Encoder, error) { return minilm.OpenSource(ctx, file) }
		}
	}
	if cfg.BuiltinFile != "" {
		path = cfg.BuiltinFile
	}
	encoder, err := open(path)
	switch {
	case err == nil:
		m.builtin = model.NewBuiltin(encoder)
	case cfg.BuiltinFile != "":
		return fmt.Errorf("ANNALS_EMBEDDINGS_MODEL cannot be used: %w", err)
	case errors.Is(err, fs.ErrNotExist):
	case cfg.Builtin == BuiltinAuto:
		m.damaged = err
	default:
		return fmt.Errorf("built-in embedding model: %w; install it again", err)
	}
	return nil
}

// configured returns the model that embeds: that of the endpoint, or the built-in one, or nil.
func (m models) configured() pipeline.Vectors {
	switch {
	case m.endpoint != nil:
		return m.endpoint
	case m.builtin != nil:
		return m.builtin
	}
	return nil
}

// named returns a model by its name, with what embeds questions; nil if this process cannot call it. An endpoint is
// asked for any model but the built-in one.
func (m models) named(name string) (pipeline.Vectors, embeddings.Embed) {
	if m.builtin != nil && m.builtin.Name() == name {
		return m.builtin, m.builtin.EmbedQuestion
	}
	if m.endpoint == nil || minilm.IsName(name) {
		return nil, nil
	}
	endpoint := m.endpoint.Named(name)
	return endpoint, func(ctx context.Context, text string) ([]float32, error) {
		found, err := endpoint.Embed(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		return found[0], nil
	}
}

// least returns the least cosine of hits by a model.
func (m models) least(name string) embeddings.Least {
	if minilm.IsName(name) {
		return minilm.LeastCosine
	}
	return func(int) float64 { return m.endpointLeast }
}

// howToInstall is what installs the built-in model.
const howToInstall = "make model, or annals embeddings install FILE"

// reportNone logs that this process has no model, if its roles need one. It returns why search is lexical although
// vectors are stored, "" if none are.
func (m models) reportNone(ctx context.Context, cfg Config) (reason string) {
	switch {
	case !cfg.Roles.HasAny(rolesOfModels) || cfg.Builtin == BuiltinNone:
	case m.stored != "":
		remedy := "set ANNALS_EMBEDDINGS_URL and ANNALS_EMBEDDINGS_NAME as before, or ANNALS_EMBEDDINGS=none to do without"
		if minilm.IsName(m.stored) {
			remedy = "install it (" + howToInstall + ") and start again, or set ANNALS_EMBEDDINGS=none to do without"
		}
		logger := cfg.Logger
		if m.damaged != nil {
			logger = logger.With("err", m.damaged)
		}
		logger.WarnContext(ctx, "the embedding model of the stored vectors is missing: recall searches by words alone",
			"model", m.stored, "remedy", remedy)
		return fmt.Sprintf("the embedding model %s of the stored vectors is missing: recall searches by words alone; %s",
			m.stored, remedy)
	case m.damaged != nil:
		cfg.Logger.WarnContext(ctx, "the built-in embedding model cannot be used: recall searches by words alone",
			"remedy", "install it again: "+howToInstall, "err", m.damaged)
	case cfg.Builtin == BuiltinWanted:
		cfg.Logger.WarnContext(ctx, "the built-in embedding model is not installed: recall searches by words alone",
			"install", howToInstall)
	default:
		cfg.Logger.InfoContext(ctx, "no embedding model is installed: recall searches by words alone",
			"install", howToInstall)
	}
	return ""
}
