package minilm

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// openModel opens the model in the folder ANNALS_TEST_MODEL, or skips the test.
func openModel(t testing.TB) *Model {
	t.Helper()
	dir := os.Getenv("ANNALS_TEST_MODEL")
	if dir == "" {
		t.Skip("set ANNALS_TEST_MODEL to a folder with the installed model")
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reference is testdata/reference.json.
type reference struct {
	Tokens []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	} `json:"tokens"`
	Vectors []struct {
		Text    string    `json:"text"`
		Tokens  int       `json:"tokens"`
		Cosines []float32 `json:"cosines"`
		Exact   []float32 `json:"exact"`
		ONNX    []float32 `json:"onnx"`
	} `json:"vectors"`
}

func loadReference(t *testing.T) reference {
	t.Helper()
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTokenizer_SameIDsAsReference(t *testing.T) {
	m := openModel(t)
	for _, want := range loadReference(t).Tokens {
		if got := m.tok.encode(nil, want.Text); !slices.Equal(got, want.IDs) {
			t.Errorf("%q:\n got %d\nwant %d", want.Text, got, want.IDs)
		}
	}
}

func TestEmbed_CloseToReference(t *testing.T) {
	m := openModel(t)
	if m.Name() != "all-MiniLM-L6-v2-q@afdb6f1a0e45" {
		t.Errorf("name %q", m.Name())
	}
	wants := loadReference(t).Vectors
	vectors := make([][]float32, len(wants))
	for i, want := range wants {
		if n := len(m.tok.encode(nil, want.Text)); n != want.Tokens {
			t.Errorf("%.40q: %d tokens, want %d", want.Text, n, want.Tokens)
		}
		v := mustEmbed(t, m, want.Text)
		vectors[i] = v
		if len(v) != Dims || math.Abs(dot(v, v)-1) > 1e-5 {
			t.Errorf("%.40q: %d dimensions, square of length %f", want.Text, len(v), dot(v, v))
		}
		for k, x := range want.Exact {
			if diff := math.Abs(float64(x - v[k])); diff > 1e-4 {
				t.Errorf("%.40q: dimension %d is %f, want %f", want.Text, k, v[k], x)
			}
		}
		if want.ONNX != nil {
			c := cosine(v, want.ONNX)
			t.Logf("%.40q: cosine %.5f to onnxruntime", want.Text, c)
			if c < 0.99 {
				t.Errorf("%.40q: cosine %f to onnxruntime", want.Text, c)
			}
		}
	}
	for i, want := range wants {
		for j, c := range want.Cosines {
			if got := cosine(vectors[i], vectors[j]); math.Abs(float64(got-c)) > 0.03 {
				t.Errorf("cosine of %.40q and %.40q is %f, want %f", want.Text, wants[j].Text, got, c)
			}
		}
	}
}

// Concurrent calls must not share buffers, and a call must not depend on the one before.
func TestEmbed_Concurrent(t *testing.T) {
	m := openModel(t)
	texts := []string{"short", strings.Repeat("a longer text about ships ", 9), "middle sized text, with a comma"}
	wants := make([][]float32, len(texts))
	for i, text := range texts {
		wants[i] = mustEmbed(t, m, text)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, text := range texts {
				if v, err := m.Embed(context.Background(), text); err != nil || !slices.Equal(v, wants[i]) {
					t.Errorf("%.20q: another vector, error %v", text, err)
				}
			}
		})
	}
	wg.Wait()
}

func mustEmbed(t *testing.T, m *Model, text string) []float32 {
	t.Helper()
	v, err := m.Embed(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func cosine(a, b []float32) float32 {
	return float32(dot(a, b) / math.Sqrt(dot(a, a)*dot(b, b)))
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
