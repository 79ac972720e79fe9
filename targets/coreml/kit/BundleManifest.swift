// What an app reads of a bundle's manifest.json. Written for Swift 5.9; see docs/targets/coreml.md.
// Not compiled by this project: no Swift toolchain was at hand.

import Foundation

/// The part of the manifest that running the graphs needs.
struct BundleManifest: Decodable {
    /// One function of a package: an encoder, or a step of a fixed number of beams.
    struct Component: Decodable {
        let name: String
        let role: String
        let file: String
        /// Function of the package; nil where every graph has a package of its own.
        let function: String?
        /// Height and width in pixels.
        let bucket: [Int]
        let beams: Int?
    }

    /// A size of a state tensor: a number, or the name of an axis.
    enum Axis: Decodable {
        case size(Int)
        case named(String)

        init(from decoder: Decoder) throws {
            let container = try decoder.singleValueContainer()
            if let size = try? container.decode(Int.self) {
                self = .size(size)
            } else {
                self = .named(try container.decode(String.self))
            }
        }
    }

    /// A tensor that is carried from step to step; it starts at zero.
    struct State: Decodable {
        let name: String
        let shape: [Axis]
        /// "replace": the output is the next input. "append": the output goes to row `position` of the axis "time".
        let update: String
    }

    struct DecoderInfo: Decodable {
        let memory: [String]
        let state: [State]
        let maxSteps: Int
        let stride: Int
        let sos: Int
        let eos: Int
    }

    let components: [Component]
    /// Heights and widths in the order in which they are tried.
    let buckets: [[Int]]
    let decoder: DecoderInfo

    /// Read `manifest.json` of a bundle folder.
    static func read(bundle: URL) throws -> BundleManifest {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(Self.self, from: Data(contentsOf: bundle.appendingPathComponent("manifest.json")))
    }
}
