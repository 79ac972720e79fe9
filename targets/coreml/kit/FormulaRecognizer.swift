// Recognise a drawn formula: one encoder call, then decoder steps until the end token (greedy).
// iOS 18 / macOS 15 for the bundle `coreml`, iOS 16 / macOS 13 for `coreml-ios16`. See docs/targets/coreml.md.
// Not compiled and not run on Apple hardware by this project: no Swift toolchain was at hand.

import CoreML
import Foundation

enum RecognizerError: Error {
    case tooLarge(height: Int, width: Int)
    case missing(String)
}

/// A grey picture by the raster contract (docs/raster.md): ink 255 on 0, row by row.
struct Raster {
    let height: Int
    let width: Int
    let pixels: [UInt8]
}

/// What was read.
struct Reading {
    /// LaTeX tokens in order; docs/targets/coreml.md says how to join them.
    let tokens: [String]
    /// Natural log-probability of each token, and at the end that of the end token where there is one.
    let logProbabilities: [Float]
    /// Whether the end token came before the decoder's last row.
    let ended: Bool
}

/// An actor: loading takes seconds the first time, and a model must not be used by two threads at once.
actor FormulaRecognizer {
    private let folder: URL
    private let manifest: BundleManifest
    private let vocabulary: [String]
    private var models: [String: MLModel] = [:]
    private var compiled: [String: URL] = [:]

    /// - Parameter bundle: the folder `<model>-coreml-<precision>.hmer`.
    init(bundle: URL) throws {
        folder = bundle
        manifest = try BundleManifest.read(bundle: bundle)
        let tokens = try Data(contentsOf: bundle.appendingPathComponent("vocab.json"))
        vocabulary = try JSONDecoder().decode([String].self, from: tokens)
    }

    /// Load what a raster of this size needs, so that the first recognition is not the slow one.
    func prepare(height: Int, width: Int) async throws {
        let bucket = try smallestBucket(height, width)
        _ = try await model("encoder", bucket)
        _ = try await model("step", bucket)
    }

    /// Read a raster. Cancelling the task stops between two steps.
    func recognize(_ raster: Raster) async throws -> Reading {
        let bucket = try smallestBucket(raster.height, raster.width)
        let encoder = try await model("encoder", bucket)
        let step = try await model("step", bucket)
        let memory = try run(encoder, encoderInput(raster, bucket, encoder))
        var inputs: [String: MLFeatureValue] = [:]
        for name in manifest.decoder.memory {
            inputs[name] = memory.featureValue(for: name)  // handed on as they are, never copied
        }
        for state in manifest.decoder.state {
            inputs[state.name] = MLFeatureValue(multiArray: try zeros(like: step, input: state.name))
        }
        let token = try MLMultiArray(shape: [1], dataType: .int32)
        let position = try MLMultiArray(shape: [1], dataType: .int32)
        inputs["token"] = MLFeatureValue(multiArray: token)
        inputs["position"] = MLFeatureValue(multiArray: position)

        var ids: [Int] = [], logs: [Float] = []
        var last = manifest.decoder.sos
        for row in 0..<manifest.decoder.maxSteps {
            try Task.checkCancellation()
            token[0] = NSNumber(value: last)
            position[0] = NSNumber(value: row)
            let outputs = try run(step, MLDictionaryFeatureProvider(dictionary: inputs))
            guard let found = outputs.featureValue(for: "log_probs")?.multiArrayValue else {
                throw RecognizerError.missing("log_probs")
            }
            let scores = MLShapedArray<Float>(found).scalars
            // Ids 0 and 1 (padding, start) are never an answer.
            last = scores.indices.dropFirst(2).max { scores[$0] < scores[$1] } ?? manifest.decoder.eos
            logs.append(scores[last])
            if last == manifest.decoder.eos {
                return Reading(tokens: ids.map { vocabulary[$0 - 3] }, logProbabilities: logs, ended: true)
            }
            ids.append(last)
            for state in manifest.decoder.state {
                guard let next = outputs.featureValue(for: "next_\(state.name)"), let value = next.multiArrayValue,
                    let old = inputs[state.name]?.multiArrayValue
                else { throw RecognizerError.missing("next_\(state.name)") }
                if state.update == "append" {
                    append(value, to: old, axis: timeAxis(state), row: row)
                } else {
                    inputs[state.name] = next
                }
            }
        }
        return Reading(tokens: ids.map { vocabulary[$0 - 3] }, logProbabilities: logs, ended: false)
    }

    /// The synchronous prediction: an async function would get the asynchronous one, which needs iOS 17.
    private func run(_ model: MLModel, _ inputs: MLFeatureProvider) throws -> MLFeatureProvider {
        try model.prediction(from: inputs)
    }

    // MARK: - Models

    private func smallestBucket(_ height: Int, _ width: Int) throws -> [Int] {
        guard let bucket = manifest.buckets.first(where: { $0[0] >= height && $0[1] >= width }) else {
            throw RecognizerError.tooLarge(height: height, width: width)
        }
        return bucket
    }

    /// The greedy graph of a bucket, loaded once. The encoder may use the Neural Engine; a step is so small that a
    /// trip there costs more than it saves, so it stays on the CPU. Measure both on your device.
    private func model(_ role: String, _ bucket: [Int]) async throws -> MLModel {
        let fits = manifest.components.first { $0.role == role && $0.bucket == bucket && ($0.beams ?? 1) == 1 }
        guard let component = fits else { throw RecognizerError.missing("\(role) for \(bucket)") }
        if let model = models[component.name] { return model }
        let options = MLModelConfiguration()
        options.computeUnits = role == "encoder" ? .all : .cpuOnly
        if #available(iOS 18, macOS 15, *), let function = component.function {
            options.functionName = function
        }
        let model = try await MLModel.load(contentsOf: try await compiledURL(component.file), configuration: options)
        models[component.name] = model
        return model
    }

    /// Xcode compiles packages in the app target; a package from elsewhere is compiled here, once a launch.
    private func compiledURL(_ file: String) async throws -> URL {
        if let url = compiled[file] { return url }
        let shipped = folder.appendingPathComponent(file).deletingPathExtension().appendingPathExtension("mlmodelc")
        let exists = FileManager.default.fileExists(atPath: shipped.path)
        let url = exists ? shipped : try await MLModel.compileModel(at: folder.appendingPathComponent(file))
        compiled[file] = url
        return url
    }

    // MARK: - Tensors

    private func encoderInput(_ raster: Raster, _ bucket: [Int], _ encoder: MLModel) throws -> MLFeatureProvider {
        let picture = try zeros(like: encoder, input: "raster")
        let half = picture.dataType == .float16
        picture.withUnsafeMutableBytes { bytes, strides in
            for row in 0..<raster.height {
                for column in 0..<raster.width {
                    let at = row * strides[2] + column * strides[3]
                    let value = Float(raster.pixels[row * raster.width + column]) / 255
                    if half {
                        bytes.bindMemory(to: Float16.self)[at] = Float16(value)
                    } else {
                        bytes.bindMemory(to: Float.self)[at] = value
                    }
                }
            }
        }
        let size = try MLMultiArray(shape: [1, 2], dataType: .int32)
        size[0] = NSNumber(value: raster.height)
        size[1] = NSNumber(value: raster.width)
        return try MLDictionaryFeatureProvider(dictionary: ["raster": picture, "size": size])
    }

    /// An array of zeros of an input's shape and type; a fresh MLMultiArray is not zero by itself.
    private func zeros(like model: MLModel, input: String) throws -> MLMultiArray {
        let described = model.modelDescription.inputDescriptionsByName[input]
        guard let kind = described?.multiArrayConstraint else { throw RecognizerError.missing(input) }
        let array = try MLMultiArray(shape: kind.shape, dataType: kind.dataType)
        array.withUnsafeMutableBytes { bytes, _ in _ = memset(bytes.baseAddress!, 0, bytes.count) }
        return array
    }

    private func timeAxis(_ state: BundleManifest.State) -> Int {
        state.shape.firstIndex { if case .named("time") = $0 { return true } else { return false } } ?? 0
    }

    /// Copy `value` into row `row` of the cache's axis `axis`; the cache is ours and contiguous, `value` may not be.
    private func append(_ value: MLMultiArray, to cache: MLMultiArray, axis: Int, row: Int) {
        if cache.dataType == .float16 {
            copy(MLShapedArray<Float16>(value).scalars, to: cache, axis: axis, row: row)
        } else {
            copy(MLShapedArray<Float>(value).scalars, to: cache, axis: axis, row: row)
        }
    }

    private func copy<Scalar>(_ scalars: [Scalar], to cache: MLMultiArray, axis: Int, row: Int) {
        let shape = cache.shape.map(\.intValue)
        let inner = shape[(axis + 1)...].reduce(1, *)
        let outer = shape[..<axis].reduce(1, *)
        cache.withUnsafeMutableBytes { bytes, _ in
            let target = bytes.bindMemory(to: Scalar.self)
            for i in 0..<outer {
                for j in 0..<inner {
                    target[(i * shape[axis] + row) * inner + j] = scalars[i * inner + j]
                }
            }
        }
    }
}
