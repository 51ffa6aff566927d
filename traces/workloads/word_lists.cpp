#include "traces/workloads/word_lists.hpp"

#include <sstream>

namespace kvsim::workload {
namespace {

std::vector<std::string> words_of(const char* text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

const std::vector<std::string>& key_words() {
  static const std::vector<std::string> kWords = words_of(
      "lamp honey fruit autumn mango wolf crow vulture arrow dragon pearl almond antelope tango ribbon "
      "clay valley beaver cherry cobalt snow nurse kettle cypress night forest barley skunk pond knee "
      "thistle corn acacia pencil lime olive squirrel wine jacket lark pillow wallet oak puppet swan "
      "mother bakery hedgehog jungle scarlet anchor tweed music hawk rose pepper onion tulip ember atom "
      "dolphin castle winter willow wax train ginger drum hazel earth suede wasp harbor fig leopard "
      "tower bugle hockey oboe temple falcon hamster camel market sugar satin nickel gazelle peony "
      "cloud quartz mirror ocean koala mauve cello plaid bell copper vessel gold museum quilt ruler "
      "saucer indigo goblin moose river urn giraffe badger rooster donkey clover candle acorn urchin "
      "chalk leather apple goose steel island desert insect rocket mole engine fox poppy opal crane "
      "bread jaguar hunter moss fern window basket monkey pelican magpie fossil ivory ostrich canyon "
      "organ bamboo deer butter rain bison purse iris carrot waltz hen sailor raven knight cactus shark "
      "coffee yarn noodle polka cabin bottle harp lichen tomato lettuce plum tent nest robin ");
  return kWords;
}

const std::vector<std::string>& value_words() {
  static const std::vector<std::string> kWords = words_of(
      "eagle paper jasmine dinner maple oyster daisy hammer tree igloo rubber teal ladder wand ferret "
      "otter glass pirate peach aster wizard hornet infant jade rabbit mint yeast lizard uncle elephant "
      "bucket saddle ticket elm stork nutmeg parrot dagger tunnel guitar pine wool gull panda fiddle "
      "radish attic flute zinc hill tiger tailor barrel wheat palace heart walnut fabric emerald dance "
      "trout walrus bear denim linen banana juice school violin juniper elbow viper nose pewter toad "
      "violet balcony moon sitar opera finch wagon goat garden kite lantern vanilla vase family puffin "
      "iron galaxy weasel rhythm umbrella leaf feather piano nectar gravel thunder banjo crayon bridge "
      "velcro grape vine salmon dove cougar silk milk pigeon sparrow sunset tin basin meadow cedar "
      "spider cellar diamond cotton needle voyage queen goblet oven ink bishop flame lilac magnet jewel "
      "heron velvet rice mustard helmet kitchen doctor barn panther robot silver jelly lotus bacon newt "
      "trumpet lemon poplar lagoon salt lobster duck marble whale jockey zebra ferry kitten orchid "
      "birch kidney yacht church nettle bone eraser bronze turtle seal horse lace pebble amber library ");
  return kWords;
}

const std::vector<std::string>& all_words() {
  static const std::vector<std::string> kWords = [] {
    std::vector<std::string> words = key_words();
    words.insert(words.end(), value_words().begin(), value_words().end());
    return words;
  }();
  return kWords;
}

const std::vector<std::string>& variable_names() {
  static const std::vector<std::string> kNames = words_of("b c d f g h k l m p r t w");
  return kNames;
}

}  // namespace kvsim::workload
