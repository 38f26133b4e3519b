// Which batch norms a module has, who holds each, and putting others in their places. Not for
// users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

// `Replacement`: made from a batch norm and the group.
template <class Replacement>
class Conversion {
public:
    explicit Conversion(ProcessGroup& group) : group_(group) {}

    std::shared_ptr<torch::nn::Module> convert(const std::shared_ptr<torch::nn::Module>& root) {
        if (auto made = replacement_of(*root)) return made;
        find(*root, "");
        require_replaceable();
        for (Replacement* const own : own_) {
            if (own->group() == nullptr) own->set_group(group_);
        }
        for (const Member& member : members_) replace(member);
        return root;
    }

private:
    using Module = torch::nn::Module;
    struct Member {
        Module* parent;
        std::string name;
        std::string path;
        std::shared_ptr<Module> child;
    };

    // Null when it is no batch norm. One that several members hold stays one.
    std::shared_ptr<Replacement> replacement_of(Module& module) {
        std::shared_ptr<Replacement>& made = made_[&module];
        if (!made) made = make<torch::nn::BatchNorm1dImpl>(module);
        if (!made) made = make<torch::nn::BatchNorm2dImpl>(module);
        if (!made) made = make<torch::nn::BatchNorm3dImpl>(module);
        return made;
    }
    template <class BatchNorm>
    std::shared_ptr<Replacement> make(Module& module) {
        const auto* const found = dynamic_cast<const BatchNorm*>(&module);
        return found == nullptr ? nullptr : std::make_shared<Replacement>(*found, group_);
    }

    void find(Module& parent, const std::string& prefix) {
        if (!visited_.insert(&parent).second) return;  // several members hold it
        if (auto* const own = dynamic_cast<Replacement*>(&parent)) {
            own_.push_back(own);
            return;
        }
        for (const auto& child : parent.named_children()) {
            const std::string path = prefix + child.key();
            if (replacement_of(*child.value())) {
                members_.push_back({&parent, child.key(), path, child.value()});
            } else {
                find(*child.value(), path + ".");
            }
        }
    }

    static bool is_container(const Module& parent) {
        return dynamic_cast<const torch::nn::SequentialImpl*>(&parent) != nullptr ||
               dynamic_cast<const torch::nn::ModuleListImpl*>(&parent) != nullptr ||
               dynamic_cast<const torch::nn::ModuleDictImpl*>(&parent) != nullptr;
    }

    // Each list of submodules holds a child once, a container does so once more, and so do we.
    void require_replaceable() const {
        std::unordered_map<const Module*, long> holders;
        for (const Member& member : members_) {
            holders[member.child.get()] += is_container(*member.parent) ? 3 : 2;
        }
        for (const Member& member : members_) {
            if (is_container(*member.parent)) continue;
            if (member.child.use_count() <= holders[member.child.get()]) continue;
            throw UsageError("libtorch: convert_sync_batchnorm cannot replace " + member.path +
                             ": something else, as a member of " + member.parent->name() +
                             ", holds it and would go on calling it; declare that as "
                             "ddp::libtorch::SyncBatchNorm, or put the batch norm into a "
                             "Sequential");
        }
    }

    void replace(const Member& member) {
        const std::shared_ptr<Replacement> made = made_.at(member.child.get());
        if (auto* const dict = dynamic_cast<torch::nn::ModuleDictImpl*>(member.parent)) {
            torch::OrderedDict<std::string, std::shared_ptr<Module>> one;
            one.insert(member.name, made);
            return dict->update(one);
        }
        if (auto* const list = dynamic_cast<torch::nn::ModuleListImpl*>(member.parent)) {
            for (std::shared_ptr<Module>& element : *list) {
                if (element == member.child) element = made;
            }
        }
        if (auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(member.parent)) {
            for (torch::nn::AnyModule& element : *sequential) {
                if (element.ptr() == member.child) element = torch::nn::AnyModule(made);
            }
        }
        member.parent->replace_module(member.name, made);
    }

    ProcessGroup& group_;
    std::unordered_set<const Module*> visited_;  // parents
    std::vector<Member> members_;
    std::vector<Replacement*> own_;  // that were there already
    std::unordered_map<const Module*, std::shared_ptr<Replacement>> made_;
};

}  // namespace ddp::libtorch::detail
